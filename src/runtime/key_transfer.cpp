#include "runtime/key_transfer.hpp"

#include <algorithm>
#include <memory>

#include "compiler/wire.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::runtime {
namespace {

using Pair = KeyTransfer::Pair;

Pair rows_of(const Pair& pair, i64 first, i64 count) {
  return {pair.first.narrow(0, first, count), pair.second.narrow(0, first, count)};
}

Pair made(const Pair& like, i64 rows, DType type, const at::Device& device) {
  return {empty({rows, like.first.size(1)}, type, device), empty({rows, like.second.size(1)}, type, device)};
}

void zero(const Pair& pair) {
  pair.first.zero_();
  pair.second.zero_();
}

void add(const Pair& to, const Pair& from) {
  to.first.add_(from.first);
  to.second.add_(from.second);
}

at::Tensor room_of(i64 bytes) { return bytes > 0 ? empty({bytes}, DType::u8, at::kCPU) : at::Tensor(); }

}  // namespace

KeyTransfer::KeyTransfer(KernelCall& call, const at::Tensor& keys, const at::Tensor& values)
    : call_(call), exchange_(call.feeds.ring_keys), own_(keys, values) {
  const RingLink& ring = call.replica.ring;
  if (ring.encoding.codec == codecs::Codec::none) return;
  const compiler::KeyRooms rooms =
      compiler::key_rooms(ring.encoding, ir::key_bytes(call.stage, call.instr, call.position), exchange_,
                          call.feeds.ring_rank, ring.peers, call.replica.fabric->cluster());
  room_ = room_of(rooms.values);
  gradient_room_ = room_of(rooms.gradients);
}

codecs::Codec KeyTransfer::codec_of(const at::Tensor& rows, int from, int to) const {
  return compiler::codec_of(call_.replica.ring.encoding, dtype_of(rows), rows.numel(), from, to,
                            call_.replica.fabric->cluster());
}

void KeyTransfer::send(Transfer& transfer, int peer, const Pair& pair) const {
  const int own = call_.replica.fabric->rank();
  transfer.send(peer, pair.first, codec_of(pair.first, own, peer));
  transfer.send(peer, pair.second, codec_of(pair.second, own, peer));
}

void KeyTransfer::receive(Transfer& transfer, int peer, const Pair& pair, bool add) const {
  const int own = call_.replica.fabric->rank();
  transfer.receive(peer, pair.first, add, codec_of(pair.first, peer, own));
  transfer.receive(peer, pair.second, add, codec_of(pair.second, peer, own));
}

bool KeyTransfer::in_steps() const { return any() && seen().rows > 0 && call_.stage.passing == KeyPassing::ring; }

void KeyTransfer::make_room() {
  if (!any() || seen().rows == 0) return;
  received_ = made(own_, seen().rows, dtype_of(own_.first), own_.first.device());
  for (const batch::KeyRows& rows : seen().own) {
    const Pair to = rows_of(received_, rows.at, rows.count), from = rows_of(own_, rows.row, rows.count);
    copy_view(to.first, from.first);
    copy_view(to.second, from.second);
  }
}

void KeyTransfer::forward(const Compute& compute) {
  make_room();
  std::optional<Flight> coming;
  for (size_t step = 0; step < steps(); ++step) {
    land(coming);
    coming = bring(step);
    compute_step(step, compute, false);
  }
}

void KeyTransfer::backward(at::Tensor& keys, at::Tensor& values, const Compute& compute) {
  to_ = {keys, values};
  make_room();
  if (received_.first.defined()) made_ = made(own_, seen().rows, call_.state, own_.first.device());
  std::optional<Flight> coming, going;
  for (size_t step = 0; step < std::max(steps(), exchange_.returns.size()); ++step) {
    land(coming);
    coming = bring(step);
    if (step < steps()) compute_step(step, compute, true);
    if (step + 1 == steps()) received_ = {};
    land(going);
    going = take_back(step);
  }
  land(going);
  make_own();
  if (own_gradients_.first.is_same(keys)) return;
  keys.copy_(own_gradients_.first);
  values.copy_(own_gradients_.second);
}

void KeyTransfer::compute_step(size_t step, const Compute& compute, bool backward) {
  const std::vector<kernels::AttentionBlock>& blocks = call_.feeds.blocks[step];
  if (blocks.empty() && (computed_ || step + 1 < steps())) return;
  const bool own = step == 0 || !received_.first.defined();
  compute({.number = step,
           .first = !computed_,
           .keys = own ? own_ : received_,
           .gradients = backward ? gradients_of(own ? 0 : step) : Pair{},
           .blocks = blocks});
  computed_ = true;
}

// The tensors in which the gradients of a step's keys are computed; for own keys the outputs, if these are in the state
// dtype.
KeyTransfer::Pair KeyTransfer::gradients_of(size_t step) {
  if (step == 0) {
    make_own();
    return own_gradients_;
  }
  for (const kernels::AttentionBlock& block : call_.feeds.blocks[step]) zero(rows_of(made_, block.k, block.kn));
  return made_;
}

// Sums that several ranks add to. They begin with what the rank makes of its own keys: in its shard, or among those
// that are brought together.
void KeyTransfer::make_own() {
  if (own_gradients_.first.defined()) return;
  own_gradients_ =
      dtype_of(to_.first) == call_.state ? to_ : made(own_, own_.first.size(0), call_.state, own_.first.device());
  zero(own_gradients_);
  for (const batch::KeyRows& rows : seen().own)
    add(rows_of(own_gradients_, rows.row, rows.count), rows_of(made_, rows.at, rows.count));
}

std::optional<Flight> KeyTransfer::bring(size_t round) {
  if (round >= exchange_.rounds.size()) return {};
  const int own = call_.feeds.ring_rank;
  return start("keys and values of attention", exchange_.rounds[round], call_.feeds.blocks[round].empty(), room_,
               [&](Transfer& transfer, const batch::KeyMessage& message, int peer) {
                 if (message.to == own)
                   receive(transfer, peer, rows_of(received_, message.at, message.count), false);
                 else
                   send(transfer, peer, rows_of(message.passed_on ? received_ : own_, message.row, message.count));
               });
}

std::optional<Flight> KeyTransfer::take_back(size_t step) {
  if (step >= exchange_.returns.size() || exchange_.returns[step].empty()) return {};
  make_own();
  const int own = call_.feeds.ring_rank;
  return start("gradients of keys and values", exchange_.returns[step], step + 1 >= steps(), gradient_room_,
               [&](Transfer& transfer, const batch::KeyMessage& message, int peer) {
                 if (message.to == own)
                   send(transfer, peer, rows_of(made_, message.at, message.count));
                 else
                   receive(transfer, peer,
                           rows_of(message.passed_on ? made_ : own_gradients_, message.row, message.count), true);
               });
}

// The exchanges of a run have the same numbers on all ranks, whether these pass on anything or not.
template <class Visit>
Flight KeyTransfer::start(const char* what, const std::vector<batch::KeyMessage>& messages, bool awaited,
                          const at::Tensor& room, const Visit& visit) {
  const RingLink& ring = call_.replica.ring;
  const int own = call_.feeds.ring_rank;
  const auto transfer = std::make_shared<Transfer>(room);
  for (const batch::KeyMessage& message : messages)
    if (message.from == own || message.to == own)
      visit(*transfer, message, ring.peers[static_cast<size_t>(message.from == own ? message.to : message.from)]);
  Flight flight(
      [transfer, what, &fabric = *call_.replica.fabric, channel = ring.channel, number = ++*ring.number] {
        if (!transfer->empty()) transfer->run(fabric, channel, what, number);
      },
      own_.first.device());
  if (ring.stream && !(awaited && on_their_way_ == 0)) {
    flight.start(*ring.stream);
    ++on_their_way_;
  } else if (const Flight::Times& times = flight.run(); ring.exchanged) {
    ring.exchanged(times);
  }
  return flight;
}

void KeyTransfer::land(std::optional<Flight>& flight) {
  if (flight && flight->started()) {
    const Flight::Times& times = flight->wait();
    --on_their_way_;
    if (call_.replica.ring.exchanged) call_.replica.ring.exchanged(times);
  }
  flight.reset();
}

}  // namespace switchyard::runtime
