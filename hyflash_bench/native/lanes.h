/* What passes of a few rows in fp32 are made of: vectors, products, norms. For all libraries here.
 *
 * Every sum runs over its terms in an order that does not depend on how many rows share the pass.
 * Loops marked `omp for` are shared out where the caller has opened a parallel region.
 */
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#define LANES 8
#define MAX_TOKENS 6     /* rows that share one read of a weight */
#define PREFETCH 4608    /* floats ahead of the weights being read, a line a time */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef float half __attribute__((vector_size(2 * LANES), aligned(4), may_alias));

typedef struct {
    const float *weight, *bias; /* [out, in], [out] or null */
} Matrix;

static inline vec load(const float *p) { return *(const vec *)p; }
static inline void store(float *p, vec v) { *(vec *)p = v; }
static inline vec fill(float x) { return x - (vec){0}; }
static inline vec pick(ivec mask, vec a, vec b) {
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

static inline half fold(vec v) {
    union { vec whole; half part[2]; } u = {v};
    return u.part[0] + u.part[1];
}

static inline float total(vec v) {
    half s = fold(v);
    return (s[0] + s[2]) + (s[1] + s[3]);
}

/* The totals of four vectors, added up in the same order as by total. */
static inline half totals(vec a, vec b, vec c, vec d) {
    half p = fold(a), q = fold(b), r = fold(c), s = fold(d);
    half e = __builtin_shufflevector(p, q, 0, 4, 1, 5) + __builtin_shufflevector(p, q, 2, 6, 3, 7);
    half f = __builtin_shufflevector(r, s, 0, 4, 1, 5) + __builtin_shufflevector(r, s, 2, 6, 3, 7);
    return __builtin_shufflevector(e, f, 0, 1, 4, 5) + __builtin_shufflevector(e, f, 2, 3, 6, 7);
}

static inline vec exponential(vec x) {
    const vec top = fill(88.0f), low = fill(-87.0f), magic = fill(12582912.0f);
    x = pick(x > top, top, x);
    x = pick(x < low, low, x);
    vec n = (x * 1.44269504088896341f + magic) - magic;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = fill(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vec)((__builtin_convertvector(n, ivec) + 127) << 23);
}

static inline float dot(const float *a, const float *b, int64_t n) {
    vec s = {0};
    for (int64_t k = 0; k < n; k += LANES) s += load(a + k) * load(b + k);
    return total(s);
}

/* y[t, r] = x[t] . w[r] for two weight rows and N tokens. */
#define PAIR(N)                                                                                  \
    static void pair_##N(const float *w, const float *x, float (*y)[2], int64_t K) {             \
        vec a[N] = {0}, b[N] = {0};                                                              \
        for (int64_t k = 0; k < K; k += LANES) {                                                 \
            vec v = load(w + k), u = load(w + K + k);                                            \
            __builtin_prefetch(w + 2 * k + PREFETCH);                                            \
            for (int t = 0; t < N; t++) {                                                        \
                vec z = load(x + t * K + k);                                                     \
                a[t] += v * z, b[t] += u * z;                                                    \
            }                                                                                    \
        }                                                                                        \
        for (int t = 0; t < N; t++) y[t][0] = total(a[t]), y[t][1] = total(b[t]);                \
    }
PAIR(1) PAIR(2) PAIR(3) PAIR(4) PAIR(5) PAIR(6)

typedef void (*pair_function)(const float *, const float *, float (*)[2], int64_t);
static const pair_function PAIRS[] = {0, pair_1, pair_2, pair_3, pair_4, pair_5, pair_6};

/* y[T, O] = x[T, K] @ weight^T + bias + add; add may be null or y itself. */
static void multiply(const float *x, Matrix m, const float *add, float *y, int64_t T, int64_t K,
                     int64_t O) {
    int64_t blocks = (T + MAX_TOKENS - 1) / MAX_TOKENS;
#pragma omp for schedule(static)
    for (int64_t o = 0; o < O; o += 2) {
        if (o + 1 == O) {
            for (int64_t t = 0; t < T; t++) {
                float s = dot(x + t * K, m.weight + o * K, K) + (m.bias ? m.bias[o] : 0.0f);
                y[t * O + o] = add ? add[t * O + o] + s : s;
            }
            continue;
        }
        for (int64_t i = 0; i < blocks; i++) {
            float sum[MAX_TOKENS][2];
            int64_t t0 = T * i / blocks, n = T * (i + 1) / blocks - t0;
            PAIRS[n](m.weight + o * K, x + t0 * K, sum, K);
            for (int64_t t = 0; t < n; t++)
                for (int64_t r = 0; r < 2; r++) {
                    int64_t at = (t0 + t) * O + o + r;
                    float s = sum[t][r];
                    if (m.bias) s += m.bias[o + r];
                    y[at] = add ? add[at] + s : s;
                }
        }
    }
}

/* w and add may be null. */
static void norm_row(const float *x, const float *w, const float *add, float *y, int64_t n,
                     float eps) {
    float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int64_t k = 0; k < n; k++)
        y[k] = x[k] * scale * (w ? w[k] : 1.0f) + (add ? add[k] : 0.0f);
}

/* y[T, W] = x / rms(x) * w + add; add may be null or y itself. */
static void normalise(const float *x, const float *w, const float *add, float *y, int64_t T,
                      int64_t W, float eps) {
#pragma omp for schedule(static)
    for (int64_t t = 0; t < T; t++)
        norm_row(x + t * W, w, add ? add + t * W : 0, y + t * W, W, eps);
}

/* y[T, F] = activation(g[:, :F]) * g[:, F:]. SiLU and GELU by tanh are both x * sigmoid(u). */
static void activate(const float *g, float *y, int64_t T, int64_t F, int64_t is_gelu) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < T * F; i += LANES) {
        const float *p = g + i / F * 2 * F + i % F;
        vec x = load(p), u = x;
        if (is_gelu) u = 1.5957691216f * (x + 0.044715f * x * x * x);
        store(y + i, x / (1.0f + exponential(-u)) * load(p + F));
    }
}

/* y[T, O] = x[T, K] @ weight^T + bias. */
void linear(const float *x, const float *weight, const float *bias, float *y, int64_t T,
            int64_t K, int64_t O, int threads) {
    Matrix m = {weight, bias};
#pragma omp parallel num_threads(threads)
    multiply(x, m, 0, y, T, K, O);
}

/* y[T, W] = x / rms(x) * w; w may be null. */
void rms_norm(const float *x, const float *w, float *y, int64_t T, int64_t W, float eps) {
    for (int64_t t = 0; t < T; t++) norm_row(x + t * W, w, 0, y + t * W, W, eps);
}
