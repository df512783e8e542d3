// The kernels' inner loops for float32 on a CPU, one pass over memory each; `compiled.py` compiles and calls them.
//
// Matrices are contiguous, rows first. What a row gets depends on that row alone: neither on the rows beside it nor on
// the number of threads. Letters are those of docs/design.md; M is a number of rows.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int64_t SERIAL = 1 << 14;  // numbers below which waking other threads costs more than it saves

// exp(x) = 2^n exp(r) with |r| <= ln(2) / 2, and exp(r) by its Taylor series: within 2 units in the last place.
// 0 below -87, where float32 ends; x may be at most 88.
inline float exponential(float x) {
    const float within = x > 88.0f ? 88.0f : x < -87.0f ? -87.0f : x;
    const float n = std::nearbyint(within * 1.44269504f);
    float r = within - n * 0.693359375f;  // ln(2) in two parts, of which the first times n is exact
    r = r + n * 2.12194440e-4f;
    float series = 1.0f / 5040;
    series = series * r + 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    series = series * r + 1.0f;
    series = series * r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof power);
    return x < -87.0f ? 0.0f : series * power;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

struct Tanh {
    static inline float of(float x) { return 1.0f - 2.0f / (1.0f + exponential(2.0f * x)); }
    static inline float slope(float y) { return 1.0f - y * y; }
};

struct Relu {
    static inline float of(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays NaN
    static inline float slope(float y) { return y > 0.0f ? 1.0f : 0.0f; }
};

// e_bnr = sum_a w_a f(p_bra + q_bna)
template <typename F>
void scores(const float* __restrict p, const float* __restrict q, const float* __restrict w, float* __restrict e,
            int64_t B, int64_t N, int64_t R, int64_t A, int threads) {
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads) if (B * N * R * A > SERIAL)
    for (int64_t b = 0; b < B; ++b)
        for (int64_t r = 0; r < R; ++r) {
            const float* pr = p + (b * R + r) * A;
            for (int64_t n = 0; n < N; ++n) {
                const float* qn = q + (b * N + n) * A;
                float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
                for (int64_t a = 0; a < A; ++a) sum += w[a] * F::of(pr[a] + qn[a]);
                e[(b * N + n) * R + r] = sum;
            }
        }
}

// With gradients g of e: dp_bra += sum_n g f' (w is left out), dq_bna = w_a sum_r g f', dw_ba = sum_nr g f
template <typename F>
void scores_backward(const float* __restrict p, const float* __restrict q, const float* __restrict w,
                     const float* __restrict g, float* __restrict dp, float* __restrict dq, float* __restrict dw,
                     int64_t B, int64_t N, int64_t R, int64_t A, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (B * N * R * A > SERIAL)
    for (int64_t b = 0; b < B; ++b) {
        float *dwb = dw + b * A, *dqb = dq + b * N * A;
        std::memset(dwb, 0, A * sizeof(float));
        std::memset(dqb, 0, N * A * sizeof(float));
        for (int64_t r = 0; r < R; ++r) {
            const float* pr = p + (b * R + r) * A;
            float* dpr = dp + (b * R + r) * A;
            for (int64_t n = 0; n < N; ++n) {
                const float* qn = q + (b * N + n) * A;
                float* dqn = dqb + n * A;
                const float here = g[(b * N + n) * R + r];
#pragma omp simd
                for (int64_t a = 0; a < A; ++a) {
                    const float y = F::of(pr[a] + qn[a]), slope = here * F::slope(y);
                    dwb[a] += here * y;
                    dpr[a] += slope;
                    dqn[a] += slope;
                }
            }
        }
        for (int64_t n = 0; n < N; ++n)
            for (int64_t a = 0; a < A; ++a) dqb[n * A + a] *= w[a];
    }
}

}  // namespace

extern "C" {

void additive_scores(const float* p, const float* q, const float* w, float* e, int64_t B, int64_t N, int64_t R,
                     int64_t A, int64_t relu, int threads) {
    (relu ? scores<Relu> : scores<Tanh>)(p, q, w, e, B, N, R, A, threads);
}

void additive_scores_backward(const float* p, const float* q, const float* w, const float* g, float* dp, float* dq,
                              float* dw, int64_t B, int64_t N, int64_t R, int64_t A, int64_t relu, int threads) {
    (relu ? scores_backward<Relu> : scores_backward<Tanh>)(p, q, w, g, dp, dq, dw, B, N, R, A, threads);
}

// c' = f c + i g and h' = o tanh(c'), with i, f, g, o of x + y, (M, 4 H); `gates` keeps them for the backward pass.
void lstm_gates(const float* __restrict x, const float* __restrict y, const float* __restrict cell,
                float* __restrict gates, float* __restrict hidden, float* __restrict new_cell, int64_t M, int64_t H,
                int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (M * H > SERIAL)
    for (int64_t m = 0; m < M; ++m) {
        const float *xm = x + 4 * m * H, *ym = y + 4 * m * H, *cm = cell + m * H;
        float *gm = gates + 4 * m * H, *hm = hidden + m * H, *nm = new_cell + m * H;
#pragma omp simd
        for (int64_t k = 0; k < H; ++k) {
            const float i = sigmoid(xm[k] + ym[k]), f = sigmoid(xm[H + k] + ym[H + k]);
            const float g = Tanh::of(xm[2 * H + k] + ym[2 * H + k]), o = sigmoid(xm[3 * H + k] + ym[3 * H + k]);
            gm[k] = i, gm[H + k] = f, gm[2 * H + k] = g, gm[3 * H + k] = o;
            nm[k] = f * cm[k] + i * g;
            hm[k] = o * Tanh::of(nm[k]);
        }
    }
}

// The gradients of x (and y) and of the cell, from those of h' and c'.
void lstm_gates_backward(const float* __restrict gates, const float* __restrict cell,
                         const float* __restrict new_cell, const float* __restrict dh, const float* __restrict dc,
                         float* __restrict dx, float* __restrict dcell, int64_t M, int64_t H, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (M * H > SERIAL)
    for (int64_t m = 0; m < M; ++m) {
        const float *gm = gates + 4 * m * H, *cm = cell + m * H, *nm = new_cell + m * H;
        float *xm = dx + 4 * m * H;
#pragma omp simd
        for (int64_t k = 0; k < H; ++k) {
            const float i = gm[k], f = gm[H + k], g = gm[2 * H + k], o = gm[3 * H + k];
            const float t = Tanh::of(nm[k]), of_h = dh[m * H + k];
            const float of_c = dc[m * H + k] + of_h * o * (1.0f - t * t);
            xm[k] = of_c * g * i * (1.0f - i);
            xm[H + k] = of_c * cm[k] * f * (1.0f - f);
            xm[2 * H + k] = of_c * i * (1.0f - g * g);
            xm[3 * H + k] = of_h * t * o * (1.0f - o);
            dcell[m * H + k] = of_c * f;
        }
    }
}

// log sum_v exp s_mv and sum_v s_mv of each row.
void log_sum_exp(const float* __restrict s, float* __restrict logsumexp, float* __restrict sums, int64_t M, int64_t V,
                 int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (M * V > SERIAL)
    for (int64_t m = 0; m < M; ++m) {
        const float* row = s + m * V;
        float top = row[0], sum = 0.0f, exponentials = 0.0f;
#pragma omp simd reduction(max : top) reduction(+ : sum)
        for (int64_t v = 0; v < V; ++v) {
            top = row[v] > top ? row[v] : top;
            sum += row[v];
        }
#pragma omp simd reduction(+ : exponentials)
        for (int64_t v = 0; v < V; ++v) exponentials += exponential(row[v] - top);
        logsumexp[m] = top + std::log(exponentials);
        sums[m] = sum;
    }
}

// d_mv = g_m (smoothing / V - exp(s_mv - logsumexp_m)), and (1 - smoothing) g_m more at the word.
void log_likelihood_backward(const float* __restrict s, const int64_t* __restrict words,
                             const float* __restrict logsumexp, const float* __restrict g, float* __restrict d,
                             int64_t M, int64_t V, float smoothing, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (M * V > SERIAL)
    for (int64_t m = 0; m < M; ++m) {
        const float *row = s + m * V, gm = g[m], all = logsumexp[m], uniform = smoothing / V;
        float* dm = d + m * V;
        if (gm == 0.0f) {  // of a step that is padding
            std::memset(dm, 0, V * sizeof(float));
            continue;
        }
#pragma omp simd
        for (int64_t v = 0; v < V; ++v) dm[v] = gm * (uniform - exponential(row[v] - all));
        dm[words[m]] += (1.0f - smoothing) * gm;
    }
}

}  // extern "C"
