/* What a draft spends its time on, in fp32: the pass of a block, copying, distributions.
 *
 * A draft reads few weights, so that starting a few hundred operators would take as long as reading
 * them. Tensors are contiguous; sizes of rows, heads and keys are multiples of LANES.
 */
#include "lanes.h"

#define TILE 64   /* keys that are looked at for all slots before the next ones are read */
#define QUERIES 4 /* queries that share one read of a key */

#define INLINE static inline __attribute__((always_inline))

/* The least multiple of LANES that holds n numbers. */
static inline int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

/* ln x for x > 0 that is not subnormal, to about 2 units in the last place. */
static inline vec logarithm(vec x) {
    ivec e = ((ivec)x - 0x3f3504f3) >> 23; /* leaves sqrt(1/2) .. sqrt(2) */
    vec m = (vec)((ivec)x - (e << 23)) - 1.0f, n = __builtin_convertvector(e, vec), z = m * m;
    vec p = fill(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    return m + (m * z * p - n * 2.12194440e-4f - 0.5f * z) + n * 0.693359375f;
}

/* Numbers i, i + 1, ... of n, and others past the end. */
static inline vec take(const float *p, int64_t i, int64_t n, float other) {
    if (i + LANES <= n) return load(p + i);
    float s[LANES];
    for (int64_t k = 0; k < LANES; k++) s[k] = i + k < n ? p[i + k] : other;
    return load(s);
}

static inline void put(float *p, int64_t i, int64_t n, vec v) {
    if (i + LANES <= n) store(p + i, v);
    else
        for (int64_t k = 0; i + k < n; k++) p[i + k] = v[k];
}

static float peak_of(const float *p, int64_t n) {
    vec top = fill(-INFINITY);
    for (int64_t i = 0; i < n; i += LANES) {
        vec x = take(p, i, n, -INFINITY);
        top = pick(x > top, x, top);
    }
    float peak = top[0];
    for (int k = 1; k < LANES; k++) peak = top[k] > peak ? top[k] : peak;
    return peak;
}

/* y = e^(x - peak), 0 where x is -inf; y may be x. Returns the sum. */
static float exponentials(const float *x, float *y, int64_t n, float peak) {
    vec sum = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        vec v = take(x, i, n, -INFINITY), e = pick(v == -INFINITY, fill(0), exponential(v - peak));
        put(y, i, n, e);
        sum += e;
    }
    return total(sum);
}

/* s[r, j] = q[r] . k[j] of R queries and n keys; s has room for 3 keys more. */
INLINE void score(const float *q, const float *k, float *s, int64_t n, int64_t D, int64_t pitch, int R) {
    for (int64_t j = 0; j < n; j += 4) {
        const float *key[4];
        for (int i = 0; i < 4; i++) key[i] = k + (j + i < n ? j + i : j) * D;
        vec a[QUERIES][4] = {0};
        for (int64_t d = 0; d < D; d += LANES) {
            vec v[4];
            for (int i = 0; i < 4; i++) v[i] = load(key[i] + d);
            for (int r = 0; r < R; r++) {
                vec x = load(q + r * D + d);
                for (int i = 0; i < 4; i++) a[r][i] += x * v[i];
            }
        }
        for (int r = 0; r < R; r++)
            *(half *)(s + r * pitch + j) = totals(a[r][0], a[r][1], a[r][2], a[r][3]);
    }
}

/* out[r, :W] += the sum of p[r, j] v[j, :W] over n values of R queries, for W vectors. */
INLINE void mix(const float *p, const float *v, float *out, int64_t n, int64_t D, int64_t pitch, int R,
                int W) {
    vec a[QUERIES][4];
    for (int r = 0; r < R; r++)
        for (int w = 0; w < W; w++) a[r][w] = load(out + r * D + w * LANES);
    for (int64_t j = 0; j < n; j++) {
        vec x[4];
        for (int w = 0; w < W; w++) x[w] = load(v + j * D + w * LANES);
        for (int r = 0; r < R; r++)
            for (int w = 0; w < W; w++) a[r][w] += p[r * pitch + j] * x[w];
    }
    for (int r = 0; r < R; r++)
        for (int w = 0; w < W; w++) store(out + r * D + w * LANES, a[r][w]);
}

static void score_some(const float *q, const float *k, float *s, int64_t n, int64_t D, int64_t pitch,
                       int64_t R) {
    switch (R) {
    case 1: score(q, k, s, n, D, pitch, 1); break;
    case 2: score(q, k, s, n, D, pitch, 2); break;
    case 3: score(q, k, s, n, D, pitch, 3); break;
    default: score(q, k, s, n, D, pitch, 4);
    }
}

static void mix_some(const float *p, const float *v, float *out, int64_t n, int64_t D, int64_t pitch,
                     int64_t R, int64_t W) {
    if (W == 4) switch (R) {
        case 1: mix(p, v, out, n, D, pitch, 1, 4); break;
        case 2: mix(p, v, out, n, D, pitch, 2, 4); break;
        case 3: mix(p, v, out, n, D, pitch, 3, 4); break;
        default: mix(p, v, out, n, D, pitch, 4, 4);
        }
    else
        for (int64_t r = 0; r < R; r++) mix(p + r * pitch, v, out + r * D, n, D, pitch, 1, 1);
}

typedef struct {
    const float *input_norm, *mlp_norm;
    Matrix qkv, out, gate_up, down;
    Matrix ask, mix;              /* of the memory, like the next two null without one */
    const float *codes, *found_norm; /* [B, M, K], [V] */
} Layer;

/* B slots, W hidden size, H query heads, G key heads, D head size, F inner size of the MLP, R rank of
 * the slots' inputs, 0 for none, N tokens of the vocabulary; M memory heads with keys of K, values of V. */
typedef struct {
    int64_t layers, B, W, H, G, D, F, R, N, M, K, V, follow;
    float eps, found_eps;
    double theta;
    Matrix shared, narrow, widen, head; /* [W, 2 W], [R, 2 W], [B W, R], [N, W] */
    const float *codes, *head_norm;     /* [B, W], [W] */
} Model;

typedef struct {
    int64_t first, last, slots, position; /* slots first .. last - 1 of the cache are attended to */
    int64_t length;                       /* rows of logits */
    float *cache;                         /* [layers, 2, G, slots, D]; the block goes behind last */
    const float *const *states;           /* per layer [M, K, V] or null */
    const float *known;                   /* [2 W] */
    float *logits;                        /* [length, N] */
    float *scratch;                       /* see draft_floats */
} Pass;

/* Rotates queries and keys of the block; keys and values go to the cache. tables [2, B, D / 2] */
static void place(float *qkv, float *keys, float *values, const float *tables, const Model *m,
                  const Pass *p) {
    int64_t heads = m->H + 2 * m->G, D = m->D, n = D / 2;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < m->B * heads; row++) {
        int64_t b = row / heads, h = row % heads, g = h - m->H;
        float *x = qkv + row * D;
        const float *cosine = tables + b * n, *sine = cosine + m->B * n;
        for (int64_t i = 0; i < n && h < m->H + m->G; i++) {
            float low = x[i], high = x[i + n];
            x[i] = low * cosine[i] - high * sine[i];
            x[i + n] = high * cosine[i] + low * sine[i];
        }
        float *to = h < m->H + m->G ? keys + g * p->slots * D : values + (g - m->G) * p->slots * D;
        if (h >= m->H) memcpy(to + (p->last + b) * D, x, 4 * D);
    }
}

/* What slots mix of the verified rows and of each other's: out [B, H, D]. With the last `follow` key
 * heads slot j weighs a verified row by the key j + 1 rows before it, one without such a key not at all.
 * scores [B, H, pitch]. */
static void attend(const float *qkv, const float *keys, const float *values, float *out, float *scores,
                   int64_t pitch, const Model *m, const Pass *p) {
    int64_t B = m->B, H = m->H, G = m->G, D = m->D, group = H / G, wide = D % (4 * LANES) ? 1 : 4;
    int64_t n = p->last - p->first, all = n + B, tiles = (n + TILE - 1) / TILE, parts = D / (wide * LANES);
    int64_t apart = p->slots * D;
    keys += p->first * D, values += p->first * D;
#pragma omp for schedule(static)
    for (int64_t item = 0; item < G * (tiles + 1); item++) {
        int64_t g = item / (tiles + 1), tile = item % (tiles + 1);
        for (int64_t b = 0; b < B; b++) {
            int64_t ahead = g < G - m->follow ? 0 : b + 1 < n ? b + 1 : n, shift = ahead;
            int64_t from = tile * TILE, to = from + TILE < n - ahead ? from + TILE : n - ahead;
            if (tile == tiles) from = n, to = all, shift = 0; /* the block's own */
            for (int64_t r = 0, R; r < group; r += R) {
                R = group - r < QUERIES ? group - r : QUERIES;
                int64_t h = g * group + r;
                float *row = scores + (b * H + h) * pitch;
                for (int64_t i = 0; i < R && tile == 0; i++)
                    for (int64_t j = 0; j < ahead; j++) row[i * pitch + j] = -INFINITY;
                for (int64_t j = from; j < to; j += TILE) {
                    float some[QUERIES * (TILE + LANES)];
                    int64_t count = to - j < TILE ? to - j : TILE;
                    score_some(qkv + (b * (H + 2 * G) + h) * D, keys + g * apart + j * D, some, count, D,
                               TILE + LANES, R);
                    for (int64_t i = 0; i < R; i++)
                        memcpy(row + i * pitch + j + shift, some + i * (TILE + LANES), 4 * count);
                }
            }
        }
    }
#pragma omp for schedule(static)
    for (int64_t row = 0; row < B * H; row++) {
        float *s = scores + row * pitch, scale = 1.0f / sqrtf(D);
        for (int64_t j = 0; j < all; j++) s[j] *= scale;
        float share = 1.0f / exponentials(s, s, all, peak_of(s, all));
        for (int64_t j = 0; j < all; j++) s[j] *= share;
        memset(out + row * D, 0, 4 * D);
    }
#pragma omp for schedule(static)
    for (int64_t item = 0; item < G * parts; item++) {
        int64_t g = item / parts, d = item % parts * wide * LANES;
        for (int64_t at = 0; at < all; at += TILE)
            for (int64_t b = 0; b < B; b++)
                for (int64_t r = 0, R; r < group; r += R) {
                    R = group - r < QUERIES ? group - r : QUERIES;
                    int64_t row = b * H + g * group + r, count = all - at < TILE ? all - at : TILE;
                    mix_some(scores + row * pitch + at, values + g * apart + at * D + d, out + row * D + d,
                             count, D, pitch, R, wide);
                }
    }
}

/* What slots find in a memory: out [B, M, V]; asked [B, M, K + V], queries and gates, spoilt. */
static void read(float *asked, const float *state, float *out, const Model *m, const Layer *l) {
    int64_t K = m->K, V = m->V;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < m->B * m->M; row++) {
        float *query = asked + row * (K + V), *gate = query + K, *found = out + row * V;
        const float *side = state + row % m->M * K * V;
        for (int64_t k = 0; k < K; k++) query[k] += l->codes[row * K + k];
        float unit = 1.0f / fmaxf(sqrtf(dot(query, query, K)), 1e-12f);
        memset(found, 0, 4 * V);
        for (int64_t k = 0; k < K; k++)
            for (int64_t v = 0; v < V; v++) found[v] += unit * query[k] * side[k * V + v];
        norm_row(found, l->found_norm, 0, found, V, m->found_eps);
        for (int64_t v = 0; v < V; v += LANES)
            store(found + v, load(found + v) / (1.0f + exponential(-load(gate + v))));
    }
}

static int64_t widest(const Model *m) {
    int64_t inner = 3 * m->F, heads = (2 * m->H + 2 * m->G) * m->D, memory = m->M * (m->K + 2 * m->V);
    return inner > heads + memory ? inner : heads + memory;
}

int64_t draft_floats(const Model *m, int64_t n) {
    return m->W + m->R + m->B * (m->D + 2 * m->W + widest(m) + m->H * padded(n + m->B));
}

/* From what is known of the last token to the logits of the first slots. */
void draft_block(const Model *m, const Layer *layers, const Pass *p, int threads) {
    int64_t B = m->B, W = m->W, n = m->D / 2, side = m->G * p->slots * m->D;
    int64_t pitch = padded(p->last - p->first + B), wide = (m->H + 2 * m->G) * m->D;
    float *base = p->scratch, *low = base + W, *tables = low + m->R, *x = tables + B * m->D;
    float *normed = x + B * W, *scores = normed + B * W, *room = scores + B * m->H * pitch;
    float *qkv = room, *mixed = qkv + B * wide, *asked = mixed + B * m->H * m->D;
    float *found = asked + B * m->M * (m->K + m->V), *gates = room, *inner = gates + 2 * B * m->F;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < n; i++) {
            double speed = pow(m->theta, -2.0 * i / m->D);
            for (int64_t b = 0; b < B; b++) {
                tables[b * n + i] = cos((p->position + b) * speed);
                tables[(B + b) * n + i] = sin((p->position + b) * speed);
            }
        }
        multiply(p->known, m->shared, 0, base, 1, 2 * W, W);
        if (m->R) {
            multiply(p->known, m->narrow, 0, low, 1, 2 * W, m->R);
            multiply(low, m->widen, 0, x, 1, m->R, B * W);
        }
#pragma omp for schedule(static)
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = b * W; i < (b + 1) * W; i++)
                x[i] = base[i % W] + m->codes[i] + (m->R ? x[i] : 0);
        for (int64_t i = 0; i < m->layers; i++) {
            const Layer *l = layers + i;
            float *keys = p->cache + 2 * i * side, *values = keys + side;
            normalise(x, l->input_norm, 0, normed, B, W, m->eps);
            multiply(normed, l->qkv, 0, qkv, B, W, wide);
            place(qkv, keys, values, tables, m, p);
            attend(qkv, keys, values, mixed, scores, pitch, m, p);
            multiply(mixed, l->out, x, x, B, m->H * m->D, W);
            if (l->codes) {
                multiply(normed, l->ask, 0, asked, B, W, m->M * (m->K + m->V));
                read(asked, p->states[i], found, m, l);
                multiply(found, l->mix, x, x, B, m->M * m->V, W);
            }
            normalise(x, l->mlp_norm, 0, normed, B, W, m->eps);
            multiply(normed, l->gate_up, 0, gates, B, W, 2 * m->F);
            activate(gates, inner, B, m->F, 0);
            multiply(inner, l->down, x, x, B, m->F, W);
        }
        normalise(x, m->head_norm, 0, normed, p->length, W, m->eps);
        multiply(normed, m->head, 0, p->logits, p->length, W, m->N);
    }
}

/* s[j] = q . k[j] of n keys; s has room for 3 keys more. */
static void compare(const float *q, const float *k, float *s, int64_t n, int64_t D) {
#pragma omp for schedule(static)
    for (int64_t j = 0; j < n; j += TILE)
        score(q, k + j * D, s + j, n - j < TILE ? n - j : TILE, D, 0, 1);
}

/* out[place] += vote where the place is one of V, without a branch that guesses which are. */
static inline void cast(float *out, int64_t place, float vote, int64_t V) {
    int counts = place >= 0 && place < V;
    out[counts ? place : 0] += counts ? vote : 0.0f;
}

/* The chances of V tokens to be copied to each of B slots: out [B, V].
 *
 * query [K] of any length, keys [R, K] of unit length, behind which stand tokens at places [R] of the
 * vocabulary, V for one outside it, and last the anchor's: row r votes for the token b + 1 rows ahead.
 * Of rows before these are remembered old_keys [P, K] and their tokens named [P, B], -1 first where
 * nothing is. trust [B]; scores [R + P + 3]. Places that are still empty take the time of filled ones.
 */
void vote(const float *query, const float *keys, const int32_t *places, int64_t last,
          const float *old_keys, const int32_t *named, const float *trust, const float *log_sharpness,
          const float *threshold, float *scores, float *out, int64_t B, int64_t R, int64_t P, int64_t K,
          int64_t V, int threads) {
    float weight, *old = scores + R;
#pragma omp parallel num_threads(threads)
    {
        compare(query, keys, scores, R, K);
        compare(query, old_keys, old, P, K);
#pragma omp single
        {
            float unit = 1.0f / fmaxf(sqrtf(dot(query, query, K)), 1e-12f), sharpness = expf(*log_sharpness);
            for (int64_t r = 0; r < R + P; r++) scores[r] = sharpness * (unit * scores[r] - *threshold);
            for (int64_t r = 0; r < P; r++) old[r] = named[r * B] < 0 ? -INFINITY : old[r];
            float peak = fmaxf(0, peak_of(scores, R + P)); /* 0 is the choice of copying nothing */
            weight = expf(-peak) + exponentials(scores, scores, R + P, peak);
        }
#pragma omp for schedule(static)
        for (int64_t b = 0; b < B; b++) {
            float *to = out + b * V, share = 1.0f / (1.0f + expf(-trust[b])) / weight;
            memset(to, 0, 4 * V);
            for (int64_t r = 0; r + b + 1 < R; r++) cast(to, places[r + b + 1], share * scores[r], V);
            if (b < R) cast(to, last, share * scores[R - b - 1], V);
            for (int64_t r = 0; r < P; r++) cast(to, named[r * B + b], share * old[r], V);
        }
    }
}

/* out [V] = ln(softmax(logits) (1 - the sum of votes) + votes), votes being `least` at least and adding up
 * to `most` at most; out may be logits. */
static void mix_in(const float *logits, const float *votes, float *out, int64_t V, float most, float least) {
    vec sum = {0};
    for (int64_t i = 0; i < V; i += LANES) sum += take(votes, i, V, 0);
    float copied = total(sum) < most ? total(sum) : most;
    float share = (1.0f - copied) / exponentials(logits, out, V, peak_of(logits, V));
    for (int64_t i = 0; i < V; i += LANES) {
        vec v = take(votes, i, V, 0);
        v = pick(v < least, fill(least), v);
        v = take(out, i, V, 1) * share + v;
        put(out, i, V, pick(v == v, logarithm(v), v)); /* what is no number stays none */
    }
}

/* The same for M rows. */
void mixture(const float *logits, const float *votes, float *out, int64_t M, int64_t V, float most,
             float least, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (M > 1)
    for (int64_t m = 0; m < M; m++)
        mix_in(logits + m * V, votes + m * V, out + m * V, V, most, least);
}

/* The likeliest place of each of M slots, given the one before it, and the chance that it had.
 *
 * logits [M, V], spoilt; votes [M, V] or null; table [V + 1, R] and weight [V, R] of the correction by
 * the token before, which is `place` for the first slot, or null.
 */
void walk(float *logits, const float *votes, const float *table, const float *weight, int64_t place,
          int64_t *places, float *chances, int64_t M, int64_t V, int64_t R, float most, float least,
          int threads) {
    for (int64_t m = 0; m < M; m++, logits += V) {
        if (table) {
#pragma omp parallel num_threads(threads)
            multiply(table + place * R, (Matrix){weight, 0}, logits, logits, 1, R, V);
        }
        if (votes) mix_in(logits, votes + m * V, logits, V, most, least);
        float peak = peak_of(logits, V);
        for (place = 0; place < V - 1 && logits[place] != peak;) place++; /* NaN is no peak */
        places[m] = place;
        chances[m] = 1.0f / exponentials(logits, logits, V, peak);
    }
}
