#include "runtime/key_transfer.hpp"

#include <algorithm>

#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

at::Tensor rows_of(const at::Tensor& tensor, i64 first, i64 count) { return tensor.narrow(0, first, count); }

at::Tensor made(const at::Tensor& like, i64 rows, DType type) {
  return empty({rows, like.size(1)}, type, like.device());
}

}  // namespace

bool KeyTransfer::any() const {
  return std::ranges::any_of(seen_, [](const batch::SeenKeys& of_rank) { return of_rank.rows > 0; });
}

// Ranks number the exchanges of a run alike, whether they pass on anything or not.
template <class Fill>
void KeyTransfer::exchange(const char* what, const Fill& fill) {
  const auto begin = std::chrono::steady_clock::now();
  const RingLink& ring = call_.replica.ring;
  Transfer transfer;
  fill(transfer, ring.peers);
  const i64 row = ++*ring.row;
  if (!transfer.empty()) transfer.run(*call_.replica.fabric, ring.channel, what, row);
  if (ring.exchanged) ring.exchanged(begin, std::chrono::steady_clock::now());
}

std::pair<at::Tensor, at::Tensor> KeyTransfer::gathered(const at::Tensor& keys, const at::Tensor& values) {
  if (!any()) return {keys, values};
  const int own = call_.feeds.ring_rank;
  std::pair<at::Tensor, at::Tensor> all{keys, values};
  if (is_gathered()) {
    all.first = made(keys, call_.feeds.seen_keys(), dtype_of(keys));
    all.second = made(values, call_.feeds.seen_keys(), dtype_of(values));
  }
  exchange("keys and values of attention", [&](Transfer& transfer, const std::vector<int>& peers) {
    for (size_t rank = 0; rank < seen_.size(); ++rank)
      for (const batch::KeyRows& rows : seen_[rank].from) {
        if (static_cast<int>(rank) == own && rows.holder == own) {
          copy_view(rows_of(all.first, rows.at, rows.count), rows_of(keys, rows.row, rows.count));
          copy_view(rows_of(all.second, rows.at, rows.count), rows_of(values, rows.row, rows.count));
        } else if (static_cast<int>(rank) == own) {
          const int peer = peers[static_cast<size_t>(rows.holder)];
          transfer.receive(peer, rows_of(all.first, rows.at, rows.count), false);
          transfer.receive(peer, rows_of(all.second, rows.at, rows.count), false);
        } else if (rows.holder == own) {
          transfer.send(peers[rank], rows_of(keys, rows.row, rows.count));
          transfer.send(peers[rank], rows_of(values, rows.row, rows.count));
        }
      }
  });
  return all;
}

std::pair<at::Tensor, at::Tensor> KeyTransfer::gradients(at::Tensor& keys, at::Tensor& values) const {
  if (!is_gathered()) return {keys, values};
  return {made(keys, call_.feeds.seen_keys(), call_.state), made(values, call_.feeds.seen_keys(), call_.state)};
}

// Sums that several ranks add to lie in host memory, as the fabric brings what it adds there.
void KeyTransfer::returned(const std::pair<at::Tensor, at::Tensor>& from, at::Tensor& keys, at::Tensor& values) {
  if (!any()) return;
  const int own = call_.feeds.ring_rank;
  const auto sum_for = [&](const at::Tensor& out, const at::Tensor& made_here) {
    const bool in_place = out.is_cpu() && dtype_of(out) == call_.state;
    at::Tensor sum = in_place ? out : empty({out.size(0), out.size(1)}, call_.state, at::kCPU);
    if (is_gathered())
      sum.zero_();
    else if (!in_place)
      sum.copy_(made_here);
    return sum;
  };
  at::Tensor key_sums = sum_for(keys, from.first), value_sums = sum_for(values, from.second);
  exchange("gradients of keys and values", [&](Transfer& transfer, const std::vector<int>& peers) {
    const auto each = [&](size_t rank, const auto& visit) {
      for (const batch::KeyRows& rows : seen_[rank].from) visit(rows);
    };
    each(static_cast<size_t>(own), [&](const batch::KeyRows& rows) {
      if (rows.holder != own) return;
      rows_of(key_sums, rows.row, rows.count).add_(rows_of(from.first, rows.at, rows.count).cpu());
      rows_of(value_sums, rows.row, rows.count).add_(rows_of(from.second, rows.at, rows.count).cpu());
    });
    for (size_t rank = 0; rank < seen_.size(); ++rank)
      each(rank, [&](const batch::KeyRows& rows) {
        const bool here = static_cast<int>(rank) == own;
        if (here == (rows.holder == own)) return;
        if (here) {
          const int peer = peers[static_cast<size_t>(rows.holder)];
          transfer.send(peer, rows_of(from.first, rows.at, rows.count));
          transfer.send(peer, rows_of(from.second, rows.at, rows.count));
        } else {
          transfer.receive(peers[rank], rows_of(key_sums, rows.row, rows.count), true);
          transfer.receive(peers[rank], rows_of(value_sums, rows.row, rows.count), true);
        }
      });
  });
  if (!key_sums.is_same(keys)) keys.copy_(key_sums);
  if (!value_sums.is_same(values)) values.copy_(value_sums);
}

}  // namespace switchyard::runtime
