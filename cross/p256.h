/* cross/zig-cc includes this before ring's crypto/fipsmodule/ec/p256-nistz.c (aarch64, x86-64).
 *
 * ring multiplies the base point of P-256 with a table of 151,552 bytes, a tenth of the file. Here
 * it uses its constant-time multiplication of any point instead. That adds 0.4 M instructions to
 * the load of a key and 1.1 M to a TLS handshake, and none to a renewal. The table has no caller
 * then, and the linker drops it; cross/build.sh checks that. */

#include <ring-core/base.h>

void p256_point_mul(uint64_t r[3][4], const uint64_t scalar[4], const uint64_t x[4],
                    const uint64_t y[4]);

/* The base point (FIPS 186-5) in Montgomery form, least significant limb first: the first entry of
 * the table. */
static const uint64_t BASE_X[4] = {
    0x79e730d418a9143c, 0x75ba95fc5fedb601, 0x79fb732b77622510, 0x18905f76a53755c6};
static const uint64_t BASE_Y[4] = {
    0xddf25357ce95560a, 0x8b4ab8e4ba19e45c, 0xd2e88688dd21f325, 0x8571ff1825885d85};

void p256_point_mul_base(uint64_t r[3][4], const uint64_t scalar[4])
{
    p256_point_mul(r, scalar, BASE_X, BASE_Y);
}

void p256_point_mul_base_vartime(uint64_t r[3][4], const uint64_t scalar[4])
{
    p256_point_mul(r, scalar, BASE_X, BASE_Y);
}

/* ring's own definitions, which follow, get names that nothing calls. */
#undef p256_point_mul_base
#undef p256_point_mul_base_vartime
#define p256_point_mul_base p256_point_mul_base_by_table
#define p256_point_mul_base_vartime p256_point_mul_base_vartime_by_table
