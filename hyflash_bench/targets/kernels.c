/* A decoder pass over a few rows in fp32, at the speed of the memory bus.
 * The cache may be fp32, bf16, fp16 or int8; sums are in fp32 whatever it is.
 *
 * A pass of 1 to 16 rows reads every weight once and does little arithmetic. Matrix libraries read
 * at half the bus for one row and cost twice as much for five, and an interpreter between two
 * products finds its own code evicted from the caches by the weights. So the whole stack of layers
 * runs in one call, and a weight is read once for up to MAX_TOKENS rows.
 *
 * Every sum runs over its terms in an order that does not depend on how many rows share the pass,
 * so a token verified in a chain gets, bit for bit, the result that it gets alone.
 *
 * Tensors are contiguous. T rows, W hidden size, H query heads, G key heads, D head size, R rotated
 * part of it, F inner size of the MLP, C slots of the cache; W, D, F are multiples of LANES, C of 4.
 */
#include "lanes.h"

#define KEYS 64    /* keys in one unit of attention work */
#define QUERIES 3  /* queries that share one read of a key */

typedef struct {
    const float *input_norm, *query_norm, *key_norm, *attention_norm, *mlp_norm, *down_norm;
    Matrix qkv, output, gate_up, down;
    int64_t table, window; /* which of a pass's rotary tables and visibilities */
} Layer;

typedef struct {
    int64_t layers, W, H, G, D, F, is_gelu;
    float eps, scale, softcap; /* softcap 0 is none */
} Model;

enum { F32, BF16, F16, I8 };
static const int64_t SIZES[] = {4, 2, 2, 1};

/* Keys or values of one layer: [G, C, D] numbers of a kind, and [G, C] scales of int8 as fp16. */
typedef struct {
    char *numbers;
    uint16_t *scales;
    int64_t kind;
} Side;

typedef struct {
    int64_t T, R, C, start, kind;
    char *cache;                    /* [layers, 2, G, C, D] of the kind */
    uint16_t *scales;               /* [layers, 2, G, C] with int8, else null */
    const float *const *cosine;     /* per table [T, R] */
    const float *const *sine;
    const int64_t *const *first;    /* per window [T], the first slot that a row sees */
    const uint8_t *const *within;   /* per window [T, T], whether row t sees slot start + s */
    float *const *taps;             /* per layer [T, W] or null */
    float *x;                       /* [T, W], in and out */
    float *scratch;                 /* see scratch_floats */
} Pass;

static inline float from_half(uint16_t h) {
    union { uint32_t whole; float real; } u = {(uint32_t)(h & 0x7fff) << 13};
    u.real *= 0x1p112f;
    if ((h & 0x7c00) == 0x7c00) u.whole |= 0x7f800000;
    u.whole |= (uint32_t)(h & 0x8000) << 16;
    return u.real;
}

/* To the nearest, ties to even; past the range the largest. */
static inline uint16_t to_half(float x) {
    union { float real; uint32_t whole; } u = {fabsf(x)};
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (!(u.real < 65504.0f)) return sign | 0x7bff;
    if (u.real < 0x1p-14f) return sign | (uint16_t)lrintf(u.real * 0x1p24f);
    uint32_t rounded = u.whole - 0x38000000 + 0xfff + ((u.whole >> 13) & 1);
    return sign | (uint16_t)(rounded >> 13);
}

static inline uint16_t to_bfloat(float x) {
    union { float real; uint32_t whole; } u = {x};
    return (u.whole + 0x7fff + ((u.whole >> 16) & 1)) >> 16;
}

/* Keep a row of D numbers in a slot, counted over all heads. */
static void keep(const float *x, Side to, int64_t slot, int64_t D) {
    char *at = to.numbers + slot * D * SIZES[to.kind];
    uint16_t *narrow = (uint16_t *)at;
    if (to.kind == F32) memcpy(at, x, 4 * D);
    else if (to.kind == BF16)
        for (int64_t d = 0; d < D; d++) narrow[d] = to_bfloat(x[d]);
    else if (to.kind == F16)
        for (int64_t d = 0; d < D; d++) narrow[d] = to_half(x[d]);
    else {
        float top = 0;
        for (int64_t d = 0; d < D; d++) top = fmaxf(top, fabsf(x[d]));
        uint16_t scale = to_half(fmaxf(top / 127.0f, 0x1p-24f));
        float step = from_half(scale);
        to.scales[slot] = scale;
        for (int64_t d = 0; d < D; d++)
            ((int8_t *)at)[d] = (int8_t)fmaxf(-127, fminf(127, rintf(x[d] / step)));
    }
}

/* n rows from a slot on, as fp32: the cache itself where it is that, else written to room. */
static const float *widen(Side from, int64_t slot, int64_t n, int64_t D, float *restrict room) {
    const char *at = from.numbers + slot * D * SIZES[from.kind];
    const uint16_t *narrow = (const uint16_t *)at;
    const int8_t *levels = (const int8_t *)at;
    uint32_t *restrict whole = (uint32_t *)room;
    if (from.kind == F32) return (const float *)at;
    if (from.kind == BF16)
        for (int64_t i = 0; i < n * D; i++) whole[i] = (uint32_t)narrow[i] << 16;
    else if (from.kind == F16)
        for (int64_t i = 0; i < n * D; i++) room[i] = from_half(narrow[i]);
    else
        for (int64_t j = 0; j < n; j++) {
            float step = from_half(from.scales[slot + j]);
            for (int64_t i = j * D; i < (j + 1) * D; i++) room[i] = step * levels[i];
        }
    return room;
}

static void rotate(float *x, const float *cosine, const float *sine, int64_t n) {
    int64_t h = n / 2;
    for (int64_t i = 0; i < h; i++) {
        float a = x[i], b = x[i + h];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + h] = b * cosine[i + h] + a * sine[i + h];
    }
}

/* Norms and rotates queries and keys; queries go to [G, T H / G, D], keys and values to the cache. */
static void place(float *qkv, float *queries, Side keys, Side values, const Model *m,
                  const Layer *l, const Pass *p) {
    int64_t heads = m->H + 2 * m->G, group = m->H / m->G, D = m->D;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < p->T * heads; i++) {
        int64_t t = i / heads, h = i % heads;
        float *x = qkv + i * D;
        const float *norm = h < m->H ? l->query_norm : l->key_norm;
        if (h < m->H + m->G) {
            if (norm) norm_row(x, norm, 0, x, D, m->eps);
            rotate(x, p->cosine[l->table] + t * p->R, p->sine[l->table] + t * p->R, p->R);
        }
        int64_t slot = p->start + t;
        if (h < m->H) memcpy(queries + ((h / group * p->T + t) * group + h % group) * D, x, 4 * D);
        else if (h < m->H + m->G) keep(x, keys, (h - m->H) * p->C + slot, D);
        else keep(x, values, (h - m->H - m->G) * p->C + slot, D);
    }
}

/* s[r, j] = q[r] . k[j] for N queries and 4 keys. */
#define SCORE(N)                                                                                 \
    static void score_##N(const float *k, const float *q, float *s, int64_t D) {                 \
        vec a[N][4] = {0};                                                                       \
        for (int64_t d = 0; d < D; d += LANES) {                                                 \
            vec k0 = load(k + d), k1 = load(k + D + d), k2 = load(k + 2 * D + d),                \
                k3 = load(k + 3 * D + d);                                                        \
            for (int r = 0; r < N; r++) {                                                        \
                vec z = load(q + r * D + d);                                                     \
                a[r][0] += k0 * z, a[r][1] += k1 * z, a[r][2] += k2 * z, a[r][3] += k3 * z;      \
            }                                                                                    \
        }                                                                                        \
        for (int r = 0; r < N; r++)                                                              \
            *(half *)(s + r * KEYS) = totals(a[r][0], a[r][1], a[r][2], a[r][3]);                \
    }                                                                                            \
    /* out[r] = sum of p[r, j] v[j] over n values, for N queries. */                             \
    static void mix_##N(const float *p, const float *v, float *out, int64_t n, int64_t D,        \
                        int64_t stride) {                                                        \
        int64_t d = 0;                                                                           \
        for (; d + 4 * LANES <= D; d += 4 * LANES) {                                             \
            vec a[N][4] = {0};                                                                   \
            for (int64_t j = 0; j < n; j++) {                                                    \
                const float *z = v + j * D + d;                                                  \
                vec v0 = load(z), v1 = load(z + LANES), v2 = load(z + 2 * LANES),                \
                    v3 = load(z + 3 * LANES);                                                    \
                for (int r = 0; r < N; r++) {                                                    \
                    vec w = fill(p[r * KEYS + j]);                                               \
                    a[r][0] += w * v0, a[r][1] += w * v1, a[r][2] += w * v2, a[r][3] += w * v3;  \
                }                                                                                \
            }                                                                                    \
            for (int r = 0; r < N; r++)                                                          \
                for (int i = 0; i < 4; i++) store(out + r * stride + d + i * LANES, a[r][i]);    \
        }                                                                                        \
        for (; d < D; d += LANES)                                                                \
            for (int r = 0; r < N; r++) {                                                        \
                vec a = {0};                                                                     \
                for (int64_t j = 0; j < n; j++) a += p[r * KEYS + j] * load(v + j * D + d);      \
                store(out + r * stride + d, a);                                                  \
            }                                                                                    \
    }
SCORE(1) SCORE(2) SCORE(3)

typedef void (*score_function)(const float *, const float *, float *, int64_t);
typedef void (*mix_function)(const float *, const float *, float *, int64_t, int64_t, int64_t);
static const score_function SCORES[] = {0, score_1, score_2, score_3};
static const mix_function MIXES[] = {0, mix_1, mix_2, mix_3};

/* Softmax of one query over one unit of keys: s becomes exp(s - peak), 0 where unseen.
 * n keys, of which those from first on are seen, from start on only if within says so. */
static void soften(float *s, int64_t n, int64_t first, const uint8_t *within, int64_t start,
                   const Model *m, float *peak, float *weight) {
    for (int64_t j = n; j < KEYS; j++) s[j] = 0;
    for (int64_t j = 0; j < KEYS; j += LANES) store(s + j, load(s + j) * m->scale);
    if (m->softcap > 0)
        for (int64_t j = 0; j < n; j++) s[j] = tanhf(s[j] / m->softcap) * m->softcap;
    for (int64_t j = 0; j < n && j < first; j++) s[j] = -INFINITY;
    for (int64_t j = start > 0 ? start : 0; j < n; j++)
        if (!within[j - start]) s[j] = -INFINITY;
    for (int64_t j = n; j < KEYS; j++) s[j] = -INFINITY;
    vec top = load(s);
    for (int64_t j = LANES; j < KEYS; j += LANES) top = pick(load(s + j) > top, load(s + j), top);
    *peak = -INFINITY, *weight = 0;
    for (int i = 0; i < LANES; i++)
        if (top[i] > *peak) *peak = top[i];
    if (*peak == -INFINITY) return;
    vec sum = {0};
    for (int64_t j = 0; j < KEYS; j += LANES) {
        vec x = load(s + j), e = pick(x == -INFINITY, fill(0), exponential(x - *peak));
        store(s + j, e);
        sum += e;
    }
    *weight = total(sum);
}

/* Attention of all rows: each unit of keys by itself, then the units put together.
 * queries [G, T H / G, D]; out [T, H D]; partial [G units, T H / G, D + 2]: mix, peak, weight;
 * room [threads, 2, KEYS, D]: a unit of keys and values in fp32. */
static void attend(const float *queries, Side keys, Side values, float *out, float *partial,
                   float *room, const Model *m, const Layer *l, const Pass *p) {
    const int64_t *first = p->first[l->window], D = m->D, wide = D + 2;
    int64_t stop = p->start + p->T, group = m->H / m->G, rows = group * p->T, low = first[0];
    for (int64_t t = 1; t < p->T; t++) low = first[t] < low ? first[t] : low;
    room += omp_get_thread_num() * 2 * KEYS * D;
    int64_t unit0 = low / KEYS, units = (stop + KEYS - 1) / KEYS - unit0;
#pragma omp for schedule(static)
    for (int64_t item = 0; item < m->G * units; item++) {
        int64_t g = item / units, at = (unit0 + item % units) * KEYS;
        int64_t n = stop - at < KEYS ? stop - at : KEYS, slot = g * p->C + at;
        const float *k = widen(keys, slot, (n + 3) / 4 * 4, D, room);
        const float *v = widen(values, slot, n, D, room + KEYS * D);
        for (int64_t r = 0, N; r < rows; r += N) {
            N = rows - r < QUERIES ? rows - r : QUERIES;
            const float *q = queries + (g * rows + r) * D;
            float s[QUERIES * KEYS], *to = partial + (item * rows + r) * wide;
            for (int64_t j = 0; j < n; j += 4) SCORES[N](k + j * D, q, s + j, D);
            for (int64_t i = 0; i < N; i++) {
                int64_t t = (r + i) / group;
                soften(s + i * KEYS, n, first[t] - at, p->within[l->window] + t * p->T,
                       p->start - at, m, to + i * wide + D, to + i * wide + D + 1);
                if (to[i * wide + D + 1] == 0)
                    for (int64_t j = 0; j < n; j++) s[i * KEYS + j] = 0;
            }
            MIXES[N](s, v, to, n, D, wide);
        }
    }
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p->T * m->H; row++) {
        int64_t t = row / m->H, h = row % m->H, next = rows * wide;
        float *y = out + row * D, peak = -INFINITY, weight = 0;
        const float *from = partial + (h / group * units * rows + t * group + h % group) * wide;
        for (int64_t u = 0; u < units; u++)
            if (from[u * next + D] > peak) peak = from[u * next + D];
        memset(y, 0, 4 * D);
        for (int64_t u = 0; u < units; u++, from += next) {
            if (from[D + 1] == 0) continue;
            float c = expf(from[D] - peak);
            weight += c * from[D + 1];
            for (int64_t d = 0; d < D; d++) y[d] += c * from[d];
        }
        for (int64_t d = 0; d < D; d++) y[d] /= weight;
    }
}

int64_t scratch_floats(const Model *m, int64_t T, int64_t start, int threads) {
    int64_t units = (start + T + KEYS - 1) / KEYS;
    return T * (2 * m->W + (3 * m->H + 2 * m->G) * m->D + 3 * m->F) +
           units * m->H * T * (m->D + 2) + threads * 2 * KEYS * m->D;
}

/* The i-th side of the cache, with so many slots over all heads. */
static Side side_of(const Pass *p, int64_t i, int64_t slots, int64_t D) {
    return (Side){p->cache + i * slots * D * SIZES[p->kind], p->scales ? p->scales + i * slots : 0,
                  p->kind};
}

/* All layers; x becomes the residual stream that leaves the last one. */
void decode(const Model *m, const Layer *layers, const Pass *p, int threads) {
    int64_t T = p->T, W = m->W, wide = (m->H + 2 * m->G) * m->D, side = m->G * p->C;
    float *normed = p->scratch, *branch = normed + T * W, *qkv = branch + T * W;
    float *queries = qkv + T * wide, *mixed = queries + T * m->H * m->D;
    float *gates = mixed + T * m->H * m->D, *inner = gates + 2 * T * m->F;
    float *room = inner + T * m->F, *partial = room + threads * 2 * KEYS * m->D;
#pragma omp parallel num_threads(threads)
    for (int64_t i = 0; i < m->layers; i++) {
        const Layer *l = layers + i;
        Side keys = side_of(p, 2 * i, side, m->D), values = side_of(p, 2 * i + 1, side, m->D);
        normalise(p->x, l->input_norm, 0, normed, T, W, m->eps);
        multiply(normed, l->qkv, 0, qkv, T, W, wide);
        place(qkv, queries, keys, values, m, l, p);
        attend(queries, keys, values, mixed, partial, room, m, l, p);
        if (l->attention_norm) {
            multiply(mixed, l->output, 0, branch, T, m->H * m->D, W);
            normalise(branch, l->attention_norm, p->x, p->x, T, W, m->eps);
        } else
            multiply(mixed, l->output, p->x, p->x, T, m->H * m->D, W);
        normalise(p->x, l->mlp_norm, 0, normed, T, W, m->eps);
        multiply(normed, l->gate_up, 0, gates, T, W, 2 * m->F);
        activate(gates, inner, T, m->F, m->is_gelu);
        if (l->down_norm) {
            multiply(inner, l->down, 0, branch, T, m->F, W);
            normalise(branch, l->down_norm, p->x, p->x, T, W, m->eps);
        } else
            multiply(inner, l->down, p->x, p->x, T, m->F, W);
        if (p->taps[i]) {
#pragma omp single
            memcpy(p->taps[i], p->x, 4 * T * W);
        }
    }
}
