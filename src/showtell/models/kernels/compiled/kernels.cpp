// The kernels' inner loops for float32 on a CPU, one pass over memory each; `library.py` compiles and calls them.
//
// Matrices are contiguous, rows first. What a row gets depends on that row alone: neither on the rows beside it nor on
// the number of threads. Letters are those of docs/design.md; M is a number of rows.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

constexpr int64_t SERIAL = 1 << 17;  // exponentials below which waking another thread costs more than it saves

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

inline float hyperbolic_tangent(float x) { return 1.0f - 2.0f / (1.0f + exponential(2.0f * x)); }

// The exponential of a sum is the product of the exponentials, so that those of p and q are computed once for all their
// sums: tanh(p + q) = 1 - 2 r with r = 1 / (1 + u) and u = e^2p e^2q. For this |p| and |q| stay below 43, where e^2x still
// is a float32; rows that do not are computed sum by sum. From e^20 on r does not change tanh any more, and with u no
// larger, a division serves two numbers: 1 / x = y / (x y).
constexpr float LARGEST = 43.0f, SATURATED = 4.8516520e8f;

// e^2x of each number; false where one is too large, or NaN.
inline bool exponentials(const float* __restrict x, float* __restrict e, int64_t size) {
    int large = 0;
#pragma omp simd reduction(| : large)
    for (int64_t k = 0; k < size; ++k) {
        large |= !(std::fabs(x[k]) <= LARGEST);
        e[k] = exponential(2.0f * x[k]);
    }
    return !large;
}

inline float product(float x, float y) { return x * y < SATURATED ? x * y : SATURATED; }

inline float tanh_score(const float* __restrict ep, const float* __restrict eq, const float* __restrict w, int64_t A) {
    const int64_t half = A / 2;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t a = 0; a < half; ++a) {
        const float x = 1.0f + product(ep[a], eq[a]), y = 1.0f + product(ep[half + a], eq[half + a]);
        const float each = 1.0f / (x * y);
        sum += w[a] * (1.0f - 2.0f * (y * each)) + w[half + a] * (1.0f - 2.0f * (x * each));
    }
    if (A % 2) sum += w[A - 1] * (1.0f - 2.0f / (1.0f + product(ep[A - 1], eq[A - 1])));
    return sum;
}

struct Tanh {
    static constexpr bool factors = true;
    static inline float of(float x) { return hyperbolic_tangent(x); }
    static inline float slope(float y) { return 1.0f - y * y; }
};

struct Relu {
    static constexpr bool factors = false;
    static inline float of(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays NaN
    static inline float slope(float y) { return y > 0.0f ? 1.0f : 0.0f; }
};

// e_bnr = sum_a w_a f(p_bra + q_bna)
template <typename F>
void scores(const float* __restrict p, const float* __restrict q, const float* __restrict w, float* __restrict e,
            int64_t B, int64_t N, int64_t R, int64_t A, int threads) {
    std::vector<float> eq(F::factors ? B * N * A : 0);
    std::vector<char> small(B * N, 0);
    if (F::factors)
        for (int64_t n = 0; n < B * N; ++n) small[n] = exponentials(q + n * A, &eq[n * A], A);
#pragma omp parallel num_threads(threads) if (B * N * R * A > SERIAL)
    {
        std::vector<float> ep(A);
#pragma omp for collapse(2) schedule(static)
        for (int64_t b = 0; b < B; ++b)
            for (int64_t r = 0; r < R; ++r) {
                const float* pr = p + (b * R + r) * A;
                const bool is_small = F::factors && exponentials(pr, ep.data(), A);
                for (int64_t n = b * N; n < (b + 1) * N; ++n) {
                    float sum = 0.0f;
                    if (is_small && small[n]) {
                        sum = tanh_score(ep.data(), &eq[n * A], w, A);
                    } else {
#pragma omp simd reduction(+ : sum)
                        for (int64_t a = 0; a < A; ++a) sum += w[a] * F::of(pr[a] + q[n * A + a]);
                    }
                    e[n * R + r] = sum;
                }
            }
    }
}

// With gradients g of e: dp_bra += sum_n g f' (w is left out), dq_bna = w_a sum_r g f', dw_ba = sum_nr g f
template <typename F>
void scores_backward(const float* __restrict p, const float* __restrict q, const float* __restrict w,
                     const float* __restrict g, float* __restrict dp, float* __restrict dq, float* __restrict dw,
                     int64_t B, int64_t N, int64_t R, int64_t A, int threads) {
#pragma omp parallel num_threads(threads) if (B * N * R * A > SERIAL)
    {
        std::vector<float> ep(A), eq(F::factors ? N * A : 0);
        std::vector<char> small(N, 0);
#pragma omp for schedule(static)
        for (int64_t b = 0; b < B; ++b) {
            float *dwb = dw + b * A, *dqb = dq + b * N * A;
            std::memset(dwb, 0, A * sizeof(float));
            std::memset(dqb, 0, N * A * sizeof(float));
            if (F::factors)
                for (int64_t n = 0; n < N; ++n) small[n] = exponentials(q + (b * N + n) * A, &eq[n * A], A);
            for (int64_t r = 0; r < R; ++r) {
                const float* pr = p + (b * R + r) * A;
                float* dpr = dp + (b * R + r) * A;
                const bool is_small = F::factors && exponentials(pr, ep.data(), A);
                for (int64_t n = 0; n < N; ++n) {
                    const float *qn = q + (b * N + n) * A, *eqn = eq.data() + (F::factors ? n * A : 0);
                    float* dqn = dqb + n * A;
                    const float here = g[(b * N + n) * R + r];
                    if (is_small && small[n]) {
#pragma omp simd
                        for (int64_t a = 0; a < A; ++a) {
                            const float u = product(ep[a], eqn[a]), each = 1.0f / (1.0f + u);
                            const float slope = here * (4.0f * u * each * each);
                            dwb[a] += here * (1.0f - 2.0f * each);
                            dpr[a] += slope;
                            dqn[a] += slope;
                        }
                    } else {
#pragma omp simd
                        for (int64_t a = 0; a < A; ++a) {
                            const float y = F::of(pr[a] + qn[a]), slope = here * F::slope(y);
                            dwb[a] += here * y;
                            dpr[a] += slope;
                            dqn[a] += slope;
                        }
                    }
                }
            }
            for (int64_t n = 0; n < N; ++n)
                for (int64_t a = 0; a < A; ++a) dqb[n * A + a] *= w[a];
        }
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

}  // extern "C"
