#include "kernels/attention_tiles.hpp"

#include <c10/core/CPUAllocator.h>

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/gemm.hpp"
#include "kernels/vectorized.hpp"

namespace switchyard::kernels {
namespace {

// Tile sizes: products run near their peak from 64 rows on, and half the work of a causal tile on the diagonal is
// wasted.
constexpr i64 kQueries = 64, kKeys = 256;                   // forward
constexpr i64 kQueriesBackward = 128, kKeysBackward = 128;  // backward

/// Queries [q, q + rows) against keys [k, k + columns). Row r sees only the first `seen + r` columns, if any.
struct Tile {
  i64 q, rows, k, columns, seen;
  i64 visible(i64 row) const { return std::clamp<i64>(seen + row, 0, columns); }
};

/// Keys of a block that its first i queries see.
i64 keys_seen_by(const AttentionBlock& block, i64 i) { return block.causal ? block.kn - block.qn + i : block.kn; }

Tile tile_of(const AttentionBlock& block, i64 i, i64 rows, i64 j, i64 columns) {
  const i64 qn = std::min(rows, block.qn - i), kn = std::min(columns, keys_seen_by(block, i + qn) - j);
  return {.q = block.q + i,
          .rows = qn,
          .k = block.k + j,
          .columns = kn,
          .seen = block.causal ? keys_seen_by(block, i + 1) - j : kn};
}

template <class T>
SWITCHYARD_MAXIMA void raise_maxima(T* __restrict top, const T* __restrict scores, Tile tile) {
  for (i64 r = 0; r < tile.rows; ++r) {
    const T* row = scores + r * tile.columns;
    const i64 n = tile.visible(r);
    T best = top[r];
    for (i64 j = 0; j < n; ++j) best = row[j] > best ? row[j] : best;
    top[r] = best;
  }
}

/// Replaces scores by exp(score - base of the row), or 0 where the row sees nothing.
template <class T>
SWITCHYARD_LOOPS void exponentiate(T* __restrict scores, const T* __restrict base, Tile tile) {
  for (i64 r = 0; r < tile.rows; ++r) {
    T* row = scores + r * tile.columns;
    const i64 n = tile.visible(r);
    const T from = base[r];
    for (i64 j = 0; j < n; ++j) row[j] = exp_of(row[j] - from);
    for (i64 j = n; j < tile.columns; ++j) row[j] = 0;
  }
}

/// sum = sum * decay + sum of the row
template <class T>
SWITCHYARD_SUMS void add_row_sums(T* __restrict sum, const T* __restrict decay, const T* __restrict scores, Tile tile) {
  for (i64 r = 0; r < tile.rows; ++r) {
    const T* row = scores + r * tile.columns;
    T total = 0;
    for (i64 j = 0; j < tile.columns; ++j) total += row[j];
    sum[r] = sum[r] * decay[r] + total;
  }
}

template <class T>
SWITCHYARD_LOOPS void scale_rows(T* __restrict o, i64 stride, const T* __restrict factor, i64 rows, i64 width) {
  for (i64 r = 0; r < rows; ++r) {
    const T f = factor[r];
    for (i64 d = 0; d < width; ++d) o[r * stride + d] *= f;
  }
}

/// d scores = p * (dp - delta of the row), written to dp
template <class T>
SWITCHYARD_LOOPS void score_gradient(T* __restrict dp, const T* __restrict p, const T* __restrict delta, i64 rows,
                                     i64 columns) {
  for (i64 r = 0; r < rows; ++r) {
    const T d = delta[r];
    for (i64 j = 0; j < columns; ++j) dp[r * columns + j] = p[r * columns + j] * (dp[r * columns + j] - d);
  }
}

template <class T>
SWITCHYARD_SUMS void row_products(T* __restrict out, const T* __restrict a, i64 a_stride, const T* __restrict b,
                                  i64 b_stride, i64 rows, i64 width) {
  for (i64 r = 0; r < rows; ++r) {
    T sum = 0;
    for (i64 d = 0; d < width; ++d) sum += a[r * a_stride + d] * b[r * b_stride + d];
    out[r] = sum;
  }
}

/// n elements from torch's allocator, so that they count as the rank's memory.
template <class T>
c10::DataPtr elements(i64 n) {
  return c10::GetCPUAllocator()->allocate(static_cast<std::size_t>(n) * sizeof(T));
}

/// Calls f(task, scratch of its thread) for each task, longest first, on all threads. The result must not depend on
/// which thread runs a task. Scratch is on the threads' stacks, so that a rank's memory doesn't depend on their number.
template <class T, i64 scratch_elements, class F>
void run_tasks(const std::vector<double>& costs, const F& f) {
  static_assert(scratch_elements * sizeof(T) <= 512 << 10, "stacks of threads have 2 MiB at least");
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  const i64 threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  // Threads take small tasks in groups, so that two threads rarely write to neighbouring heads of a short document.
  const std::size_t grain = std::max<std::size_t>(1, costs.size() / (static_cast<std::size_t>(threads) * 16));
  std::atomic<std::size_t> next{0};
  at::parallel_for(0, threads, 1, [&](i64, i64) {
    const ProductsOnThisThread here;
    alignas(64) std::array<T, scratch_elements> scratch;
    for (std::size_t begin = next.fetch_add(grain); begin < order.size(); begin = next.fetch_add(grain)) {
      for (std::size_t i = begin; i < std::min(begin + grain, order.size()); ++i) f(order[i], scratch.data());
    }
  });
}

template <class T>
Matrix<T> head_of(Rows<const T> rows, i64 row, i64 column, bool transposed = false) {
  return {rows[row] + column, rows.stride, transposed};
}

/// One tile of queries of one head against all its keys, by online softmax (arXiv 1805.02867). more: it goes on from
/// what other keys gave, outputs with a sum of 1 whose base is their lse.
template <class T>
void forward_tile(Rows<T> o, T* lse, const AttentionInput<T>& in, const AttentionBlock& block, i64 i, i64 head,
                  T* scratch, bool more) {
  const i64 dim = in.head_dim, q_column = head * dim, k_column = head / (in.heads / in.kv_heads) * dim;
  T *top = scratch, *old_top = top + kQueries, *sum = old_top + kQueries, *factor = sum + kQueries,
    *scores = factor + kQueries;
  const i64 rows = std::min(kQueries, block.qn - i), end = keys_seen_by(block, i + rows);
  T* out = o[block.q + i] + q_column;
  T* const statistics = lse + head * in.q.rows + block.q + i;
  for (i64 r = 0; r < rows; ++r) {
    top[r] = more ? statistics[r] : -std::numeric_limits<T>::infinity();
    sum[r] = more ? T(1) : T(0);
  }
  for (i64 j = 0; j < end; j += kKeys) {
    const bool fresh = j == 0 && !more;
    const Tile tile = tile_of(block, i, kQueries, j, kKeys);
    gemm(tile.rows, tile.columns, dim, in.scale, head_of(in.q, tile.q, q_column), head_of(in.k, tile.k, k_column, true),
         T(0), scores, tile.columns);
    std::copy(top, top + rows, old_top);
    raise_maxima<T>(top, scores, tile);
    exponentiate<T>(scores, top, tile);
    for (i64 r = 0; r < rows; ++r) factor[r] = fresh ? T(0) : std::exp(old_top[r] - top[r]);
    add_row_sums<T>(sum, factor, scores, tile);
    if (!fresh) scale_rows<T>(out, o.stride, factor, rows, dim);
    gemm(tile.rows, dim, tile.columns, T(1), {scores, tile.columns}, head_of(in.v, tile.k, k_column),
         fresh ? T(0) : T(1), out, o.stride);
  }
  for (i64 r = 0; r < rows; ++r) {
    statistics[r] = top[r] + std::log(sum[r]);
    factor[r] = T(1) / sum[r];
  }
  scale_rows<T>(out, o.stride, factor, rows, dim);
}

template <class T>
struct BackwardOutput {
  Rows<T> dq, dk, dv;
  Rows<const T> d_out;
  const T *lse, *delta;  // (N, T)
};

/// One tile of the backward pass of one head: recomputes the scores; five matrix products.
template <class T>
void backward_tile(const BackwardOutput<T>& out, const AttentionInput<T>& in, const Tile& tile, i64 head, T* scratch) {
  const i64 dim = in.head_dim, q_column = head * dim, k_column = head / (in.heads / in.kv_heads) * dim,
            n = tile.columns;
  T *p = scratch, *dp = p + kQueriesBackward * kKeysBackward;
  const i64 statistics = head * in.q.rows + tile.q;
  gemm(tile.rows, n, dim, in.scale, head_of(in.q, tile.q, q_column), head_of(in.k, tile.k, k_column, true), T(0), p, n);
  exponentiate<T>(p, out.lse + statistics, tile);
  gemm(n, dim, tile.rows, T(1), {p, n, true}, head_of(out.d_out, tile.q, q_column), T(1), out.dv[tile.k] + k_column,
       out.dv.stride);
  gemm(tile.rows, n, dim, T(1), head_of(out.d_out, tile.q, q_column), head_of(in.v, tile.k, k_column, true), T(0), dp,
       n);
  score_gradient<T>(dp, p, out.delta + statistics, tile.rows, n);
  gemm(n, dim, tile.rows, in.scale, {dp, n, true}, head_of(in.q, tile.q, q_column), T(1), out.dk[tile.k] + k_column,
       out.dk.stride);
  gemm(tile.rows, dim, n, in.scale, {dp, n}, head_of(in.k, tile.k, k_column), T(1), out.dq[tile.q] + q_column,
       out.dq.stride);
}

double work_of(const AttentionBlock& block) {
  const double hidden = block.causal ? 0.5 * block.qn : 0;
  return block.qn * (block.kn - hidden);
}

/// Groups the blocks into sets with disjoint keys, so that two sets never add to the same row of dk.
std::vector<std::vector<AttentionBlock>> sets_with_own_keys(std::vector<AttentionBlock> blocks) {
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const AttentionBlock& a, const AttentionBlock& b) { return a.k < b.k; });
  std::vector<std::vector<AttentionBlock>> sets;
  i64 end = -1;
  for (const AttentionBlock& block : blocks) {
    if (block.qn == 0 || block.kn == 0) continue;
    if (block.k >= end) sets.emplace_back();
    sets.back().push_back(block);
    end = std::max<i64>(end, block.k + block.kn);
  }
  return sets;
}

}  // namespace

template <class T>
void attention_tiles(Rows<T> o, T* lse, const AttentionInput<T>& in, const std::vector<AttentionBlock>& blocks,
                     bool more) {
  struct Task {
    const AttentionBlock* block;
    i64 i, head;
  };
  std::vector<Task> tasks;
  std::vector<double> costs;
  for (const AttentionBlock& block : blocks) {
    if (block.kn == 0) continue;
    for (i64 head = 0; head < in.heads; ++head) {
      for (i64 i = 0; i < block.qn; i += kQueries) {
        tasks.push_back({&block, i, head});
        costs.push_back(static_cast<double>(keys_seen_by(block, std::min<i64>(i + kQueries, block.qn))));
      }
    }
  }
  run_tasks<T, kQueries*(kKeys + 4)>(costs, [&](std::size_t t, T* scratch) {
    forward_tile<T>(o, lse, in, *tasks[t].block, tasks[t].i, tasks[t].head, scratch, more);
  });
}

template <class T>
void attention_tiles_backward(Rows<T> dq, Rows<T> dk, Rows<T> dv, Rows<const T> d_out, Rows<const T> o, const T* lse,
                              const AttentionInput<T>& in, const std::vector<AttentionBlock>& blocks) {
  const c10::DataPtr deltas = elements<T>(in.heads * in.q.rows);
  T* const delta = static_cast<T*>(deltas.get());
  at::parallel_for(0, in.heads, 1, [&](i64 begin, i64 end) {
    for (i64 h = begin; h < end; ++h) {
      row_products<T>(delta + h * in.q.rows, d_out.data + h * in.head_dim, d_out.stride, o.data + h * in.head_dim,
                      o.stride, in.q.rows, in.head_dim);
    }
  });
  const auto sets = sets_with_own_keys(blocks);
  std::vector<double> costs;
  for (const auto& set : sets) {
    const double work = std::accumulate(set.begin(), set.end(), 0.0,
                                        [](double sum, const auto& block) { return sum + work_of(block); });
    costs.insert(costs.end(), static_cast<std::size_t>(in.kv_heads), work);
  }
  const BackwardOutput<T> out{.dq = dq, .dk = dk, .dv = dv, .d_out = d_out, .lse = lse, .delta = delta};
  const i64 per_kv_head = in.heads / in.kv_heads;
  run_tasks<T, 2 * kQueriesBackward * kKeysBackward>(costs, [&](std::size_t t, T* scratch) {
    const i64 kv_head = static_cast<i64>(t) % in.kv_heads;
    for (const AttentionBlock& block : sets[t / static_cast<std::size_t>(in.kv_heads)]) {
      for (i64 head = kv_head * per_kv_head; head < (kv_head + 1) * per_kv_head; ++head) {
        for (i64 j = 0; j < block.kn; j += kKeysBackward) {
          const i64 sees_none = std::max<i64>(j - keys_seen_by(block, 0), 0);  // so many queries see no key from j on
          for (i64 i = sees_none / kQueriesBackward * kQueriesBackward; i < block.qn; i += kQueriesBackward) {
            backward_tile<T>(out, in, tile_of(block, i, kQueriesBackward, j, kKeysBackward), head, scratch);
          }
        }
      }
    }
  });
}

template void attention_tiles<float>(Rows<float>, float*, const AttentionInput<float>&,
                                     const std::vector<AttentionBlock>&, bool);
template void attention_tiles<double>(Rows<double>, double*, const AttentionInput<double>&,
                                      const std::vector<AttentionBlock>&, bool);
template void attention_tiles_backward<float>(Rows<float>, Rows<float>, Rows<float>, Rows<const float>,
                                              Rows<const float>, const float*, const AttentionInput<float>&,
                                              const std::vector<AttentionBlock>&);
template void attention_tiles_backward<double>(Rows<double>, Rows<double>, Rows<double>, Rows<const double>,
                                               Rows<const double>, const double*, const AttentionInput<double>&,
                                               const std::vector<AttentionBlock>&);

}  // namespace switchyard::kernels
