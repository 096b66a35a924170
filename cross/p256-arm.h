/* cross/zig-cc includes this before ring's crypto/fipsmodule/ec/p256.c (ARMv6 and ARMv7).
 *
 * There, arithmetic modulo the prime of P-256 is unrolled code of fiat-crypto: 19 KB on ARMv7.
 * Here it is the code that ring uses modulo the order of P-256 and for P-384. It is constant-time
 * as well, and its multiplication uses NEON where the CPU has it. */

#include <ring-core/base.h>

#ifdef __arm__
#include <bn/internal.h>
#include <../limbs/limbs.h>

typedef BN_ULONG p256_element[8];

/* The prime (FIPS 186-5), least significant limb first, and -1/prime modulo 2^64. */
static const p256_element PRIME = {0xffffffff, 0xffffffff, 0xffffffff, 0, 0, 0, 1, 0xffffffff};
static const BN_ULONG PRIME_N0[] = {BN_MONT_CTX_N0(0, 1)};
static const p256_element ZERO;

static void p256_mul_0(p256_element r, const p256_element a, const p256_element b)
{
    bn_mul_mont_small(r, a, b, PRIME, PRIME_N0, 8);
}

static void p256_square_0(p256_element r, const p256_element a)
{
    p256_mul_0(r, a, a);
}

static void p256_add_0(p256_element r, const p256_element a, const p256_element b)
{
    LIMBS_add_mod(r, a, b, PRIME, 8);
}

static void p256_sub_0(p256_element r, const p256_element a, const p256_element b)
{
    LIMBS_sub_mod(r, a, b, PRIME, 8);
}

static void p256_opp_0(p256_element r, const p256_element a)
{
    p256_sub_0(r, ZERO, a);
}

/* p256.c itself has include level 0 and calls the functions above. fiat-crypto's header has level
 * 1: its definitions get names that nothing calls. */
#define P256_NAME(name, level) P256_PASTE(name, level)
#define P256_PASTE(name, level) name##level
#define fiat_p256_mul P256_NAME(p256_mul_, __INCLUDE_LEVEL__)
#define fiat_p256_square P256_NAME(p256_square_, __INCLUDE_LEVEL__)
#define fiat_p256_add P256_NAME(p256_add_, __INCLUDE_LEVEL__)
#define fiat_p256_sub P256_NAME(p256_sub_, __INCLUDE_LEVEL__)
#define fiat_p256_opp P256_NAME(p256_opp_, __INCLUDE_LEVEL__)
#endif
