/* cross/zig-cc includes this before ring's crypto/curve25519/curve25519.c.
 *
 * An Ed25519 signature needs numbers modulo the order L of the base point. ring computes them in
 * unrolled code: 17,400 bytes on ARMv7, 5,600 on aarch64. Here it is a loop, modL of TweetNaCl
 * (https://tweetnacl.cr.yp.to, public domain), which is constant-time as well. X25519 and the
 * points of Ed25519 remain ring's. */

#include <ring-core/base.h>

/* L = 2^252 + 27742317777372353535851937790883648493 (RFC 8032), least significant byte first. */
static const uint8_t ORDER[32] = {
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};

/* r = x mod L. x is in base 256; its digits may be as large as those of a product. */
static void modulo_order(uint8_t r[32], int64_t x[64])
{
    int64_t carry;
    for (size_t i = 63; i >= 32; i--) {
        carry = 0;
        for (size_t j = i - 32; j < i - 12; j++) {
            x[j] += carry - 16 * x[i] * ORDER[j - (i - 32)];
            carry = (x[j] + 128) >> 8;
            x[j] -= carry * 256;
        }
        x[i - 12] += carry;
        x[i] = 0;
    }
    carry = 0;
    int64_t quotient = x[31] >> 4;
    for (size_t j = 0; j < 32; j++) {
        x[j] += carry - quotient * ORDER[j];
        carry = x[j] >> 8;
        x[j] &= 255;
    }
    for (size_t j = 0; j < 32; j++) x[j] -= carry * ORDER[j];
    for (size_t i = 0; i < 32; i++) {
        x[i + 1] += x[i] >> 8;
        r[i] = x[i] & 255;
    }
}

void x25519_sc_reduce(uint8_t s[64])
{
    int64_t x[64];
    for (size_t i = 0; i < 64; i++) x[i] = s[i];
    modulo_order(s, x);
}

/* s = a * b + c mod L */
void x25519_sc_muladd(uint8_t *s, const uint8_t *a, const uint8_t *b, const uint8_t *c)
{
    int64_t x[64];
    for (size_t i = 0; i < 64; i++) x[i] = i < 32 ? c[i] : 0;
    for (size_t i = 0; i < 32; i++)
        for (size_t j = 0; j < 32; j++) x[i + j] += (int64_t)a[i] * b[j];
    modulo_order(s, x);
}

/* ring's own definitions, which follow, get names that nothing calls. */
#undef x25519_sc_reduce
#undef x25519_sc_muladd
#define x25519_sc_reduce x25519_sc_reduce_unrolled
#define x25519_sc_muladd x25519_sc_muladd_unrolled
