#include "comm/collectives.hpp"

#include <algorithm>
#include <numeric>

#include "base/errors.hpp"
#include "comm/block.hpp"

namespace switchyard::comm {
namespace {

size_t position_of(const Fabric& fabric, const Channel& channel, const std::string& name) {
  const auto at = std::find(channel.ranks.begin(), channel.ranks.end(), fabric.rank());
  check(at != channel.ranks.end(), "rank {}: \"{}\" on channel {}, of which it is not a member", fabric.rank(), name,
        channel.id);
  return static_cast<size_t>(at - channel.ranks.begin());
}

void check_pieces(const Channel& channel, const std::string& name, size_t pieces) {
  check(pieces == channel.ranks.size(), "\"{}\": {} pieces for {} ranks", name, pieces, channel.ranks.size());
}

// One rank's part in a collective: its place among the members and the operations so far.
class Exchange {
 public:
  Exchange(Fabric& fabric, const Channel& channel, const std::string& name, i64 number, DType dtype)
      : fabric_(fabric),
        channel_(channel),
        mine_(position_of(fabric, channel, name)),
        dtype_(dtype),
        transaction_{name, number, {}} {}

  size_t members() const { return channel_.ranks.size(); }
  size_t mine() const { return mine_; }
  /// The k-th member after this one: ranks that start with different peers don't all read one memory at once.
  size_t after(size_t k) const { return (mine_ + k) % members(); }

  void send(size_t to, const Block& block) {
    if (block.bytes() > 0)
      transaction_.ops.push_back({.kind = Op::Kind::send, .peer = channel_.ranks[to], .block = block, .dtype = dtype_});
  }
  void receive(size_t from, const Block& block, bool add = false) {
    if (block.bytes() > 0)
      transaction_.ops.push_back(
          {.kind = Op::Kind::recv, .peer = channel_.ranks[from], .block = block, .add = add, .dtype = dtype_});
  }
  void local(const Block& source, const Block& block, bool add = false) {
    if (block.bytes() > 0)
      transaction_.ops.push_back(
          {.kind = Op::Kind::local, .block = block, .source = source, .add = add, .dtype = dtype_});
  }
  void run() { fabric_.run(channel_, transaction_); }

 private:
  Fabric& fabric_;
  const Channel& channel_;
  size_t mine_;
  DType dtype_;
  Transaction transaction_;
};

// Contiguous memory for one piece of each member.
class Slots {
 public:
  Slots(size_t count, i64 bytes) : bytes_(bytes), memory_(count * static_cast<size_t>(bytes)) {}
  Block operator[](size_t i) { return contiguous(memory_.data() + static_cast<i64>(i) * bytes_, bytes_); }

 private:
  i64 bytes_;
  std::vector<std::byte> memory_;
};

void gather(Exchange exchange, std::span<const Block> pieces) {
  for (size_t k = 1; k < exchange.members(); ++k) {
    exchange.send(exchange.after(k), pieces[exchange.mine()]);
    exchange.receive(exchange.after(k), pieces[exchange.after(k)]);
  }
  exchange.run();
}

// out := ((p0 + p1) + p2) + ..., added in place. If `out` is the rank's own piece, ranks 0 and 1 leave their partial in
// place (p0 + p1 = p1 + p0); later ranks keep a copy of it until its turn.
void receive_sum(Exchange& exchange, const Block& own, const Block& out, Slots& kept) {
  const size_t mine = exchange.mine();
  const bool in_place = own.data == out.data;
  const bool starts_with_own = mine == 0 || (mine == 1 && in_place);
  Block partial = own;
  if (in_place && !starts_with_own) {
    partial = kept[0];
    exchange.local(own, partial);
  }
  if (starts_with_own && !in_place) exchange.local(own, out);
  for (size_t i = 0; i < exchange.members(); ++i) {
    const bool add = i > 0 || starts_with_own;
    if (i != mine) exchange.receive(i, out, add);
    if (i == mine && !starts_with_own) exchange.local(partial, out, add);
  }
}

// For bf16, all partials are received side by side, summed in fp32 and rounded once.
void receive_bf16(Exchange& exchange, const Block& own, Slots& slots) {
  for (size_t i = 0; i < exchange.members(); ++i) {
    if (i == exchange.mine())
      exchange.local(own, slots[i]);
    else
      exchange.receive(i, slots[i]);
  }
}

void sum_slots(Slots& slots, size_t members, const Block& out) {
  std::vector<const std::byte*> partials;
  for (size_t i = 0; i < members; ++i) partials.push_back(slots[i].data);
  sum_bf16(slots[0].data, partials, out.bytes() / size_of(DType::bf16));
  copy_block(out, slots[0]);
}

// All-reduce of a few numbers in place: over pairs of ranks, then pairs of pairs, ... ((0 + 1) + (2 + 3)) + ..., and
// back, with two messages per doubling.
void all_reduce_in_pairs(Fabric& fabric, const Channel& channel, const std::string& name, i64 number, const Block& own,
                         DType dtype) {
  const auto exchange_at = [&](size_t distance, bool sums) {
    Exchange exchange(fabric, channel, name, number, dtype);
    const size_t mine = exchange.mine();
    const bool second = mine % (2 * distance) == distance,
               first = mine % (2 * distance) == 0 && mine + distance < exchange.members();
    if (second) sums ? exchange.send(mine - distance, own) : exchange.receive(mine - distance, own);
    if (first) sums ? exchange.receive(mine + distance, own, true) : exchange.send(mine + distance, own);
    exchange.run();
  };
  size_t distance = 1;
  for (; distance < channel.ranks.size(); distance *= 2) exchange_at(distance, true);
  while ((distance /= 2) > 0) exchange_at(distance, false);
}

// Part i of n of an array, cut evenly.
std::vector<Block> cut(void* data, i64 elements, i64 element_size, size_t n) {
  std::vector<Block> pieces;
  for (size_t i = 0; i < n; ++i) {
    const i64 begin = elements * static_cast<i64>(i) / static_cast<i64>(n),
              end = elements * static_cast<i64>(i + 1) / static_cast<i64>(n);
    pieces.push_back(contiguous(static_cast<std::byte*>(data) + begin * element_size, (end - begin) * element_size));
  }
  return pieces;
}

template <class T>
void take_maximum(const Block& to, const Block& from) {
  T* most = reinterpret_cast<T*>(to.data);
  const T* other = reinterpret_cast<const T*>(from.data);
  for (i64 i = 0; i < to.bytes() / static_cast<i64>(sizeof(T)); ++i)
    if (other[i] > most[i] || other[i] != other[i]) most[i] = other[i];
}

}  // namespace

Channel everyone(const Fabric& fabric, int id) {
  Channel channel{id, std::vector<int>(static_cast<size_t>(fabric.size()))};
  std::iota(channel.ranks.begin(), channel.ranks.end(), 0);
  return channel;
}

void all_gather(Fabric& fabric, const Channel& channel, const std::string& name, i64 number,
                std::span<const Block> pieces) {
  check_pieces(channel, name, pieces.size());
  gather(Exchange(fabric, channel, name, number, DType::f32), pieces);
}

void reduce_scatter(Fabric& fabric, const Channel& channel, const std::string& name, i64 number,
                    std::span<const Block> pieces, Block out, DType dtype) {
  check_pieces(channel, name, pieces.size());
  Exchange exchange(fabric, channel, name, number, dtype);
  const Block& own = pieces[exchange.mine()];
  check(own.bytes() == out.bytes(), "\"{}\": own piece of {} bytes, result of {}", name, own.bytes(), out.bytes());
  for (size_t k = 1; k < exchange.members(); ++k) exchange.send(exchange.after(k), pieces[exchange.after(k)]);
  if (dtype == DType::bf16) {
    Slots slots(exchange.members(), out.bytes());
    receive_bf16(exchange, own, slots);
    exchange.run();
    sum_slots(slots, exchange.members(), out);
    return;
  }
  const bool keeps_own = own.data == out.data && exchange.mine() > 1;
  Slots kept(keeps_own ? 1 : 0, out.bytes());
  receive_sum(exchange, own, out, kept);
  exchange.run();
}

void all_reduce(Fabric& fabric, const Channel& channel, const std::string& name, i64 number, void* data, i64 elements,
                DType dtype) {
  if (channel.ranks.size() < 2) return;
  if (elements < static_cast<i64>(channel.ranks.size()) && dtype != DType::bf16)
    return all_reduce_in_pairs(fabric, channel, name, number, contiguous(data, elements * size_of(dtype)), dtype);
  const std::vector<Block> pieces = cut(data, elements, size_of(dtype), channel.ranks.size());
  reduce_scatter(fabric, channel, name, number, pieces, pieces[position_of(fabric, channel, name)], dtype);
  all_gather(fabric, channel, name, number, pieces);
}

void all_reduce_max(Fabric& fabric, const Channel& channel, const std::string& name, i64 number, void* data,
                    i64 elements, DType dtype) {
  check(dtype == DType::f32 || dtype == DType::f64, "\"{}\": maximum of {}", name, name_of(dtype));
  const std::vector<Block> pieces = cut(data, elements, size_of(dtype), channel.ranks.size());
  Exchange exchange(fabric, channel, name, number, dtype);
  const Block& own = pieces[exchange.mine()];
  Slots slots(pieces.size(), own.bytes());
  for (size_t k = 1; k < exchange.members(); ++k) {
    const size_t other = exchange.after(k);
    exchange.send(other, pieces[other]);
    exchange.receive(other, slots[other]);
  }
  exchange.run();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i == exchange.mine()) continue;
    if (dtype == DType::f32)
      take_maximum<float>(own, slots[i]);
    else
      take_maximum<double>(own, slots[i]);
  }
  all_gather(fabric, channel, name, number, pieces);
}

std::vector<std::vector<std::byte>> all_gather_blobs(Fabric& fabric, const Channel& channel, const std::string& name,
                                                     i64 number, std::span<const std::byte> mine) {
  const size_t members = channel.ranks.size(), at = position_of(fabric, channel, name);
  std::vector<i64> sizes(members);
  sizes[at] = static_cast<i64>(mine.size());
  gather(Exchange(fabric, channel, name, number, DType::i64),
         cut(sizes.data(), static_cast<i64>(members), size_of(DType::i64), members));
  std::vector<std::vector<std::byte>> blobs;
  for (const i64 size : sizes) blobs.emplace_back(static_cast<size_t>(size));
  blobs[at].assign(mine.begin(), mine.end());
  std::vector<Block> pieces;
  for (auto& blob : blobs) pieces.push_back(contiguous(blob.data(), static_cast<i64>(blob.size())));
  all_gather(fabric, channel, name, number, pieces);
  return blobs;
}

std::vector<std::byte> broadcast_blob(Fabric& fabric, const Channel& channel, const std::string& name, i64 number,
                                      std::span<const std::byte> blob) {
  const bool root = position_of(fabric, channel, name) == 0;
  const auto from_root = [&](const Block& block, DType dtype) {
    Exchange exchange(fabric, channel, name, number, dtype);
    for (size_t k = 1; root && k < exchange.members(); ++k) exchange.send(k, block);
    if (!root) exchange.receive(0, block);
    exchange.run();
  };
  i64 size = root ? static_cast<i64>(blob.size()) : 0;
  from_root(contiguous(&size, size_of(DType::i64)), DType::i64);
  std::vector<std::byte> result(static_cast<size_t>(size));
  if (root) std::copy(blob.begin(), blob.end(), result.begin());
  from_root(contiguous(result.data(), size), DType::f32);
  return result;
}

}  // namespace switchyard::comm
