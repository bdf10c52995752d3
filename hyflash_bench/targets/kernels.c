/* One decoder pass over a few rows in fp32, at the speed of the memory bus.
 *
 * A pass of 1 to 16 rows reads every weight once and does little arithmetic, yet the matrix
 * libraries read at half the bus for one row and cost twice as much for five. These kernels read a
 * weight once for up to MAX_TOKENS rows. Every sum runs over its terms in an order that does not
 * depend on how many rows share the pass, so a token verified in a draft gets, bit for bit, the
 * result that it gets alone.
 *
 * Tensors are contiguous. T rows (tokens), K inputs, O outputs, D head size, C cache capacity.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 8
#define MAX_TOKENS 6
#define KEYS 64          /* keys in one unit of attention work */
#define PREFETCH 2304    /* floats ahead of the weight being read */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float half_vec __attribute__((vector_size(2 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

static inline vec load(const float *p) { return *(const vec *)p; }
static inline void store(float *p, vec v) { *(vec *)p = v; }
static inline vec fill(float x) { return x - (vec){0}; }

static inline float total(vec v) {
    union { vec whole; half_vec half[2]; } u = {v};
    half_vec s = u.half[0] + u.half[1];
    return (s[0] + s[2]) + (s[1] + s[3]);
}

static inline vec pick(ivec mask, vec a, vec b) {
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

static inline vec vexp(vec x) {
    const vec top = fill(88.0f), low = fill(-87.0f), magic = fill(12582912.0f);
    x = pick(x > top, top, x);
    x = pick(x < low, low, x);
    vec n = x * 1.44269504088896341f + magic - magic;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = fill(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    ivec bits = (__builtin_convertvector(n, ivec) + 127) << 23;
    return p * (vec)bits;
}

static inline float dot_tail(const float *a, const float *b, int64_t from, int64_t n) {
    float s = 0;
    for (int64_t k = from; k < n; k++) s += a[k] * b[k];
    return s;
}

static float dot(const float *a, const float *b, int64_t n) {
    vec s = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES) s += load(a + k) * load(b + k);
    return total(s) + dot_tail(a, b, k, n);
}

/* y[t * stride + r] = x[t] . w[r] for 2 weight rows and N tokens. */
#define PAIR(N)                                                                                  \
    static inline void pair_##N(const float *w, const float *x, float *y, int64_t K,             \
                                int64_t stride) {                                                \
        vec a[2][N];                                                                             \
        memset(a, 0, sizeof a);                                                                  \
        int64_t k = 0;                                                                           \
        for (; k + LANES <= K; k += LANES) {                                                     \
            vec w0 = load(w + k), w1 = load(w + K + k);                                          \
            __builtin_prefetch(w + k + PREFETCH);                                                \
            __builtin_prefetch(w + K + k + PREFETCH);                                            \
            for (int t = 0; t < N; t++) {                                                        \
                vec b = load(x + t * K + k);                                                     \
                a[0][t] += w0 * b;                                                               \
                a[1][t] += w1 * b;                                                               \
            }                                                                                    \
        }                                                                                        \
        for (int t = 0; t < N; t++) {                                                            \
            y[t * stride] = total(a[0][t]) + dot_tail(w, x + t * K, k, K);                       \
            y[t * stride + 1] = total(a[1][t]) + dot_tail(w + K, x + t * K, k, K);               \
        }                                                                                        \
    }
PAIR(1) PAIR(2) PAIR(3) PAIR(4) PAIR(5) PAIR(6)

static void pair(const float *w, const float *x, float *y, int64_t T, int64_t K, int64_t stride) {
    while (T > 0) {
        int64_t passes = (T + MAX_TOKENS - 1) / MAX_TOKENS, n = (T + passes - 1) / passes;
        switch (n) {
        case 1: pair_1(w, x, y, K, stride); break;
        case 2: pair_2(w, x, y, K, stride); break;
        case 3: pair_3(w, x, y, K, stride); break;
        case 4: pair_4(w, x, y, K, stride); break;
        case 5: pair_5(w, x, y, K, stride); break;
        default: pair_6(w, x, y, K, stride); break;
        }
        x += n * K, y += n * stride, T -= n;
    }
}

/* y[T, O] = x[T, K] @ w[O, K]^T + bias[O]; O is even, bias may be null. */
void linear(const float *x, const float *w, const float *bias, float *y, int64_t T, int64_t K,
            int64_t O, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t o = 0; o < O; o += 2) {
        pair(w + o * K, x, y + o, T, K, O);
        if (bias)
            for (int64_t t = 0; t < T; t++) y[t * O + o] += bias[o], y[t * O + o + 1] += bias[o + 1];
    }
}

static void norm_row(const float *x, const float *w, float *y, int64_t n, float eps) {
    float scale = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int64_t k = 0; k < n; k++) y[k] = x[k] * scale * w[k];
}

/* y[T, K] = x / rms(x) * w; y may be x. */
void rms_norm(const float *x, const float *w, float *y, int64_t T, int64_t K, float eps) {
    for (int64_t t = 0; t < T; t++) norm_row(x + t * K, w, y + t * K, K, eps);
}

/* y[T, F] = act(g[:, :F]) * g[:, F:]; kind 0 is SiLU, 1 is GELU by tanh. Both are x * sigmoid(u). */
void gate(const float *g, float *y, int64_t T, int64_t F, int kind) {
    for (int64_t t = 0; t < T; t++, g += 2 * F, y += F)
        for (int64_t f = 0; f < F; f += LANES) {
            float in[LANES] = {0}, up[LANES] = {0}, out[LANES];
            int64_t n = F - f < LANES ? F - f : LANES;
            memcpy(in, g + f, 4 * n), memcpy(up, g + F + f, 4 * n);
            vec x = load(in), u = x;
            if (kind) u = 1.5957691216f * (x + 0.044715f * x * x * x);
            store(out, x / (1.0f + vexp(-u)) * load(up));
            memcpy(y + f, out, 4 * n);
        }
}

static void rotate(float *x, const float *cosine, const float *sine, int64_t n) {
    int64_t h = n / 2;
    for (int64_t i = 0; i < h; i++) {
        float a = x[i], b = x[i + h];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + h] = b * cosine[i + h] + a * sine[i + h];
    }
}

/* Norms and rotates queries and keys of qkv[T, (H + 2 G) D] in place, then puts keys and values
 * into the cache [G, C, D] at slots start, start + 1, ... */
void append(float *qkv, const float *q_norm, const float *k_norm, float eps, const float *cosine,
            const float *sine, float *keys, float *values, int64_t T, int64_t H, int64_t G,
            int64_t D, int64_t R, int64_t C, int64_t start) {
    for (int64_t t = 0; t < T; t++, qkv += (H + 2 * G) * D, cosine += R, sine += R) {
        for (int64_t h = 0; h < H + G; h++) {
            float *x = qkv + h * D;
            const float *w = h < H ? q_norm : k_norm;
            if (w) norm_row(x, w, x, D, eps);
            rotate(x, cosine, sine, R);
        }
        for (int64_t g = 0; g < G; g++) {
            int64_t slot = (g * C + start + t) * D;
            memcpy(keys + slot, qkv + (H + g) * D, 4 * D);
            memcpy(values + slot, qkv + (H + G + g) * D, 4 * D);
        }
    }
}

/* Weighted sum of n values [n, D] into out[D]. */
static void mix(const float *p, const float *v, float *out, int64_t n, int64_t D) {
    int64_t d = 0;
    for (; d + 4 * LANES <= D; d += 4 * LANES) {
        vec a = {0}, b = {0}, c = {0}, e = {0};
        for (int64_t j = 0; j < n; j++) {
            const float *row = v + j * D + d;
            a += p[j] * load(row), b += p[j] * load(row + LANES);
            c += p[j] * load(row + 2 * LANES), e += p[j] * load(row + 3 * LANES);
        }
        store(out + d, a), store(out + d + LANES, b);
        store(out + d + 2 * LANES, c), store(out + d + 3 * LANES, e);
    }
    for (; d < D; d++) {
        float s = 0;
        for (int64_t j = 0; j < n; j++) s += p[j] * v[j * D + d];
        out[d] = s;
    }
}

/* Softmax of one row over one unit of keys: s[KEYS] becomes exp(s - peak), 0 where unseen. */
static void soften(float *s, int64_t n, int64_t first, const uint8_t *within, int64_t start,
                   float scale, float softcap, float *peak, float *weight) {
    float top = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        float x = s[j] * scale;
        if (softcap > 0) x = tanhf(x / softcap) * softcap;
        s[j] = j >= first && (j < start || within[j - start]) ? x : -INFINITY;
        if (s[j] > top) top = s[j];
    }
    for (int64_t j = n; j < KEYS; j++) s[j] = -INFINITY;
    *peak = top, *weight = 0;
    if (top == -INFINITY) return;
    for (int64_t j = 0; j < KEYS; j += LANES) {
        vec x = load(s + j), e = pick(x == -INFINITY, fill(0), vexp(x - top));
        store(s + j, e);
        *weight += total(e);
    }
}

/* Attention of T rows over the slots below start + T of one layer's cache [G, C, D].
 *
 * qkv      [T, (H + 2 G) D], queries rotated
 * first    [T], the first slot that a row sees
 * within   [T, T], whether row t sees the slot start + s
 * out      [T, H D]
 * scratch  [G units, T H / G, D + 2 + KEYS]: a unit's mix of values, its peak, weight and scores
 */
void attend(const float *qkv, const float *keys, const float *values, const int64_t *first,
            const uint8_t *within, float *out, float *scratch, int64_t T, int64_t H, int64_t G,
            int64_t D, int64_t C, int64_t start, float scale, float softcap, int threads) {
    int64_t stop = start + T, group = H / G, wide = D + 2 + KEYS, low = first[0];
    for (int64_t t = 1; t < T; t++) low = first[t] < low ? first[t] : low;
    int64_t unit0 = low / KEYS, units = (stop + KEYS - 1) / KEYS - unit0;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t item = 0; item < G * units; item++) {
            int64_t g = item / units, at = (unit0 + item % units) * KEYS;
            int64_t n = stop - at < KEYS ? stop - at : KEYS;
            const float *k = keys + (g * C + at) * D, *v = values + (g * C + at) * D;
            for (int64_t t = 0; t < T; t++) {
                float *rows = scratch + (item * T + t) * group * wide;
                const float *q = qkv + (t * (H + 2 * G) + g * group) * D;
                for (int64_t j = 0; j + 2 <= n; j += 2)
                    pair(k + j * D, q, rows + D + 2 + j, group, D, wide);
                for (int64_t h = 0; h < group; h++) {
                    float *p = rows + h * wide, *s = p + D + 2;
                    if (n % 2) s[n - 1] = dot(q + h * D, k + (n - 1) * D, D);
                    soften(s, n, first[t] - at, within + t * T, start - at, scale, softcap, p + D,
                           p + D + 1);
                    if (p[D + 1] > 0) mix(s, v, p, n, D);
                }
            }
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < T * H; row++) {
            int64_t t = row / H, h = row % H;
            float *y = out + row * D, peak = -INFINITY, weight = 0;
            const float *p = scratch + ((h / group * units * T + t) * group + h % group) * wide;
            int64_t next = T * group * wide;
            for (int64_t u = 0; u < units; u++)
                if (p[u * next + D] > peak) peak = p[u * next + D];
            memset(y, 0, 4 * D);
            for (int64_t u = 0; u < units; u++) {
                const float *m = p + u * next;
                if (m[D + 1] == 0) continue;
                float c = expf(m[D] - peak);
                weight += c * m[D + 1];
                for (int64_t d = 0; d < D; d++) y[d] += c * m[d];
            }
            for (int64_t d = 0; d < D; d++) y[d] /= weight;
        }
    }
}
