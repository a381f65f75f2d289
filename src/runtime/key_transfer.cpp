#include "runtime/key_transfer.hpp"

#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

at::Tensor rows_of(const at::Tensor& tensor, i64 first, i64 count) { return tensor.narrow(0, first, count); }

at::Tensor made(const at::Tensor& like, i64 rows, DType type) {
  return empty({rows, like.size(1)}, type, like.device());
}

}  // namespace

bool KeyTransfer::any() const { return !keys_.rounds.empty(); }

// Ranks number the exchanges of a run alike, whether they pass on anything or not.
template <class Visit>
void KeyTransfer::exchange(const char* what, const std::vector<batch::KeyMessage>& messages, const Visit& visit) {
  const auto begin = std::chrono::steady_clock::now();
  const RingLink& ring = call_.replica.ring;
  const int own = call_.feeds.ring_rank;
  Transfer transfer;
  for (const batch::KeyMessage& message : messages)
    if (message.from == own || message.to == own)
      visit(transfer, message, ring.peers[static_cast<size_t>(message.from == own ? message.to : message.from)]);
  const i64 row = ++*ring.row;
  if (!transfer.empty()) transfer.run(*call_.replica.fabric, ring.channel, what, row);
  if (ring.exchanged) ring.exchanged(begin, std::chrono::steady_clock::now());
}

KeyTransfer::Pair KeyTransfer::gathered(const at::Tensor& keys, const at::Tensor& values) {
  if (!any()) return {keys, values};
  const int own = call_.feeds.ring_rank;
  Pair all{keys, values};
  if (is_gathered()) {
    all = {made(keys, call_.feeds.seen_keys(), dtype_of(keys)), made(values, call_.feeds.seen_keys(), dtype_of(values))};
    for (const batch::KeyRows& rows : seen().own) {
      copy_view(rows_of(all.first, rows.at, rows.count), rows_of(keys, rows.row, rows.count));
      copy_view(rows_of(all.second, rows.at, rows.count), rows_of(values, rows.row, rows.count));
    }
  }
  for (const std::vector<batch::KeyMessage>& round : keys_.rounds)
    exchange("keys and values of attention", round,
             [&](Transfer& transfer, const batch::KeyMessage& message, int peer) {
               if (message.to == own) {
                 transfer.receive(peer, rows_of(all.first, message.at, message.count), false);
                 transfer.receive(peer, rows_of(all.second, message.at, message.count), false);
               } else {
                 transfer.send(peer, rows_of(message.passed_on ? all.first : keys, message.row, message.count));
                 transfer.send(peer, rows_of(message.passed_on ? all.second : values, message.row, message.count));
               }
             });
  return all;
}

KeyTransfer::Pair KeyTransfer::gradients(at::Tensor& keys, at::Tensor& values) const {
  if (!is_gathered()) return {keys, values};
  return {made(keys, call_.feeds.seen_keys(), call_.state), made(values, call_.feeds.seen_keys(), call_.state)};
}

// Sums that several ranks add to lie in host memory, as the fabric brings what it adds there.
void KeyTransfer::returned(const Pair& from, at::Tensor& keys, at::Tensor& values) {
  if (!any()) return;
  const int own = call_.feeds.ring_rank;
  const Pair made_here{from.first.cpu(), from.second.cpu()};
  const auto sum_for = [&](const at::Tensor& out, const at::Tensor& gradients) {
    const bool in_place = out.is_cpu() && dtype_of(out) == call_.state;
    at::Tensor sum = in_place ? out : empty({out.size(0), out.size(1)}, call_.state, at::kCPU);
    if (!is_gathered()) {
      if (!in_place) sum.copy_(gradients);
      return sum;
    }
    sum.zero_();
    for (const batch::KeyRows& rows : seen().own)
      rows_of(sum, rows.row, rows.count).add_(rows_of(gradients, rows.at, rows.count));
    return sum;
  };
  const Pair sums{sum_for(keys, made_here.first), sum_for(values, made_here.second)};
  for (auto round = keys_.rounds.rbegin(); round != keys_.rounds.rend(); ++round)
    exchange("gradients of keys and values", *round,
             [&](Transfer& transfer, const batch::KeyMessage& message, int peer) {
               if (message.to == own) {
                 transfer.send(peer, rows_of(made_here.first, message.at, message.count));
                 transfer.send(peer, rows_of(made_here.second, message.at, message.count));
               } else {
                 const Pair& to = message.passed_on ? made_here : sums;
                 transfer.receive(peer, rows_of(to.first, message.row, message.count), true);
                 transfer.receive(peer, rows_of(to.second, message.row, message.count), true);
               }
             });
  if (!sums.first.is_same(keys)) keys.copy_(sums.first);
  if (!sums.second.is_same(values)) values.copy_(sums.second);
}

}  // namespace switchyard::runtime
