/* Attention of one new token in each of many contexts, over a KV cache in bfloat16.
 *
 * Such a pass is bound by reading the caches, so they are kept in half the bytes and read once, for
 * all query heads of a group together; sums are in fp32.
 *
 * N contexts, H query heads, G key heads, D head size (a multiple of 32), C slots of the cache.
 */
#include <math.h>
#include <stdint.h>

#define LANES 16
#define QUERIES 4 /* queries that share one read of a key */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef uint32_t word __attribute__((vector_size(4 * LANES)));
typedef uint16_t brief __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

static inline vec load(const float *p) { return *(const vec *)p; }
static inline vec widen(const uint16_t *p) {
    return (vec)(__builtin_convertvector(*(const brief *)p, word) << 16);
}

static inline float total(vec v) {
    float s[LANES];
    *(vec *)s = v;
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) s[i] += s[i + n];
    return s[0];
}

/* Two vectors to one: sums of halves, lanes of both by turns. */
static inline vec meet8(vec a, vec b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}
static inline vec meet4(vec a, vec b) {
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
static inline vec meet2(vec a, vec b) {
    return __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
           __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
}
static inline vec meet1(vec a, vec b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +
           __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

/* The totals of 16 vectors. */
static inline vec totals(const vec *v) {
    vec a[8], b[4];
    for (int i = 0; i < 8; i++) a[i] = meet8(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 4; i++) b[i] = meet4(a[2 * i], a[2 * i + 1]);
    return meet1(meet2(b[0], b[1]), meet2(b[2], b[3]));
}

/* e^x for x <= 0, to about 2 units in the last place. */
static inline vec exponential(vec x) {
    const vec low = (vec){0} - 87.0f, magic = (vec){0} + 12582912.0f;
    ivec keep = x > low;
    x = (vec)((keep & (ivec)x) | (~keep & (ivec)low));
    vec n = (x * 1.44269504088896341f + magic) - magic;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vec)((__builtin_convertvector(n, ivec) + 127) << 23);
}

/* s[r, j] = scale q[r] . k[j] for M queries; as many keys as LANES at a time. */
#define SCORE(M)                                                                                 \
    static void score_##M(const float *q, const uint16_t *k, float *s, int64_t n, int64_t pitch, \
                          int64_t D, float scale) {                                              \
        for (int64_t j = 0; j < n; j += LANES) {                                                 \
            vec a[M][LANES];                                                                     \
            int64_t most = n - j < LANES ? n - j : LANES;                                        \
            for (int64_t i = 0; i < LANES; i++) {                                                \
                const uint16_t *row = k + (j + (i < most ? i : 0)) * D;                          \
                vec sum[M] = {0};                                                                \
                for (int64_t d = 0; d < D; d += LANES) {                                         \
                    vec w = widen(row + d);                                                      \
                    for (int r = 0; r < M; r++) sum[r] += w * load(q + r * D + d);               \
                }                                                                                \
                for (int r = 0; r < M; r++) a[r][i] = sum[r];                                    \
            }                                                                                    \
            for (int r = 0; r < M; r++) *(vec *)(s + r * pitch + j) = scale * totals(a[r]);      \
        }                                                                                        \
    }                                                                                            \
    /* out[r] = sum of s[r, j] v[j] for M queries, 32 numbers of a head at a time. */            \
    static void mix_##M(const float *s, const uint16_t *v, float *out, int64_t n, int64_t pitch, \
                        int64_t D) {                                                             \
        for (int64_t d = 0; d < D; d += 2 * LANES) {                                             \
            vec a[M] = {0}, b[M] = {0};                                                          \
            for (int64_t j = 0; j < n; j++) {                                                    \
                vec w = widen(v + j * D + d), u = widen(v + j * D + d + LANES);                  \
                for (int r = 0; r < M; r++)                                                      \
                    a[r] += w * s[r * pitch + j], b[r] += u * s[r * pitch + j];                  \
            }                                                                                    \
            for (int r = 0; r < M; r++)                                                          \
                *(vec *)(out + r * D + d) = a[r], *(vec *)(out + r * D + d + LANES) = b[r];      \
        }                                                                                        \
    }
SCORE(1) SCORE(2) SCORE(3) SCORE(4)

typedef void (*score_function)(const float *, const uint16_t *, float *, int64_t, int64_t, int64_t, float);
typedef void (*mix_function)(const float *, const uint16_t *, float *, int64_t, int64_t, int64_t);
static const score_function SCORES[] = {0, score_1, score_2, score_3, score_4};
static const mix_function MIXES[] = {0, mix_1, mix_2, mix_3, mix_4};

/* s[n] becomes its softmax; pitch is n rounded up to LANES. */
static void soften(float *s, int64_t n, int64_t pitch) {
    float peak = s[0];
    for (int64_t j = 1; j < n; j++) peak = s[j] > peak ? s[j] : peak;
    for (int64_t j = n; j < pitch; j++) s[j] = -INFINITY;
    vec sum = {0};
    for (int64_t j = 0; j < pitch; j += LANES) {
        vec e = exponential(load(s + j) - peak);
        *(vec *)(s + j) = e;
        sum += e;
    }
    float weight = total(sum);
    for (int64_t j = n; j < pitch; j++) weight -= s[j];
    for (int64_t j = 0; j < pitch; j += LANES) *(vec *)(s + j) = load(s + j) / weight;
}

/* queries [N, H, D]; keys, values [N, G, C, D], the first n slots of which are seen;
 * out [N, H, D]; scratch [threads, QUERIES, n rounded up to LANES]. */
void attend_rows(const float *queries, const uint16_t *keys, const uint16_t *values, float *out,
                 float *scratch, int64_t N, int64_t H, int64_t G, int64_t C, int64_t D, int64_t n,
                 float scale, int threads) {
    int64_t group = H / G, pitch = (n + LANES - 1) / LANES * LANES;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; part++) {
        float *s = scratch + part * QUERIES * pitch;
        for (int64_t i = N * G * part / threads; i < N * G * (part + 1) / threads; i++) {
            const float *q = queries + i * group * D;
            float *to = out + i * group * D;
            const uint16_t *k = keys + i * C * D, *v = values + i * C * D;
            for (int64_t r = 0, M; r < group; r += M) {
                M = group - r < QUERIES ? group - r : QUERIES;
                SCORES[M](q + r * D, k, s, n, pitch, D, scale);
                for (int64_t m = 0; m < M; m++) soften(s + m * pitch, n, pitch);
                MIXES[M](s, v, to + r * D, n, pitch, D);
            }
        }
    }
}
