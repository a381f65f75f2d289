// Tests for every fabric, as functions that each rank calls with its end of the fabric: all ranks draw the same plan
// from a seed, predict the whole world's memory with plain loops, run, and compare bits. They throw on a difference.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "comm/collectives.hpp"
#include "comm/fabric.hpp"

namespace switchyard::comm::suite {

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("expectation failed: " + what);
}

// bf16 by search: the nearer of the two neighbours of x, the even one between them.
inline std::uint16_t round_to_bf16(float x) {
  const auto low = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
  const auto value = [](std::uint16_t bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  };
  const auto high = static_cast<std::uint16_t>(low + 1);
  const double to_low = std::abs(value(low) - static_cast<double>(x)),
               to_high = std::abs(value(high) - static_cast<double>(x));
  if (to_low != to_high) return to_low < to_high ? low : high;
  return low % 2 == 0 ? low : high;
}
inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

inline void add_element(std::byte* to, const std::byte* from, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return store(to, load<double>(to) + load<double>(from));
    case DType::f32:
      return store(to, load<float>(to) + load<float>(from));
    case DType::i64:
      return store(to, load<i64>(to) + load<i64>(from));
    case DType::i32:
      return store(to, load<std::int32_t>(to) + load<std::int32_t>(from));
    case DType::u8:
      return store(to, static_cast<std::uint8_t>(load<std::uint8_t>(to) + load<std::uint8_t>(from)));
    case DType::bf16:
      return store(to, round_to_bf16(from_bf16(load<std::uint16_t>(to)) + from_bf16(load<std::uint16_t>(from))));
  }
}

// Memory of one rank for one channel. Sends read one half, receives write the other.
using Memory = std::vector<std::byte>;
constexpr i64 kHalf = 1024;  // elements

inline void store_random(std::byte* at, DType dtype, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  switch (dtype) {
    case DType::f64:
      return store(at, normal(random));
    case DType::f32:
      return store(at, static_cast<float>(normal(random)));
    case DType::bf16:
      return store(at, round_to_bf16(static_cast<float>(normal(random))));
    case DType::i64:
      return store(at, static_cast<i64>(random() % 1000));
    case DType::i32:
      return store(at, static_cast<std::int32_t>(random() % 1000));
    case DType::u8:
      return store(at, static_cast<std::uint8_t>(random() % 100));
  }
}

inline std::vector<Memory> random_world(int ranks, i64 elements, DType dtype, std::mt19937_64& random) {
  std::vector<Memory> world(static_cast<size_t>(ranks), Memory(static_cast<size_t>(elements * size_of(dtype))));
  for (Memory& memory : world)
    for (i64 i = 0; i < elements; ++i) store_random(memory.data() + i * size_of(dtype), dtype, random);
  return world;
}

// A box in one half, in elements.
struct Place {
  i64 offset, rows, row, stride;
};
inline Place random_place(i64 half, i64 elements, std::mt19937_64& random) {
  if (elements == 0) return {half * kHalf, static_cast<i64>(random() % 3), 0, 0};
  std::vector<i64> divisors;
  for (i64 d = 1; d <= elements; ++d)
    if (elements % d == 0) divisors.push_back(d);
  const i64 rows = divisors[random() % divisors.size()], row = elements / rows;
  const i64 stride = row + static_cast<i64>(random() % static_cast<std::uint64_t>((kHalf - elements) / rows + 1));
  const i64 extent = (rows - 1) * stride + row;
  return {half * kHalf + static_cast<i64>(random() % static_cast<std::uint64_t>(kHalf - extent + 1)), rows, row,
          stride};
}
inline i64 byte_of(const Place& p, i64 i, DType dtype) {
  return (p.offset + i / p.row * p.stride + i % p.row) * size_of(dtype);
}
inline Block block_at(Memory& memory, const Place& p, DType dtype) {
  const i64 size = size_of(dtype);
  return {memory.data() + p.offset * size, p.rows, p.row * size, p.stride * size};
}

struct Message {
  int src, dst;
  i64 elements;
  Place from, to;
  bool add;
};

inline std::vector<Message> random_messages(int ranks, std::mt19937_64& random) {
  std::vector<Message> messages(random() % 12);
  const i64 half = static_cast<i64>(random() % 2);
  for (Message& m : messages) {
    m.src = static_cast<int>(random() % static_cast<std::uint64_t>(ranks)),
    m.dst = static_cast<int>(random() % static_cast<std::uint64_t>(ranks));
    m.elements = random() % 5 == 0 ? 0 : static_cast<i64>(1 + random() % 300);
    m.from = random_place(half, m.elements, random), m.to = random_place(1 - half, m.elements, random);
    m.add = random() % 2 == 0;
  }
  return messages;
}

inline void predict(std::vector<Memory>& world, const std::vector<Message>& messages, DType dtype) {
  const std::vector<Memory> before = world;
  for (const Message& m : messages) {
    for (i64 i = 0; i < m.elements; ++i) {
      std::byte* to = world[static_cast<size_t>(m.dst)].data() + byte_of(m.to, i, dtype);
      const std::byte* from = before[static_cast<size_t>(m.src)].data() + byte_of(m.from, i, dtype);
      if (m.add)
        add_element(to, from, dtype);
      else
        std::memcpy(to, from, static_cast<size_t>(size_of(dtype)));
    }
  }
}

inline Transaction transaction_of(const std::vector<Message>& messages, int rank, Memory& memory, DType dtype,
                                  i64 number) {
  Transaction transaction{fmt::format("transaction {}", number), number, {}};
  for (const Message& m : messages) {
    if (m.src == rank && m.dst == rank)
      transaction.ops.push_back(
          {Op::Kind::local, -1, block_at(memory, m.to, dtype), block_at(memory, m.from, dtype), m.add, dtype});
    else if (m.src == rank)
      transaction.ops.push_back({Op::Kind::send, m.dst, block_at(memory, m.from, dtype), {}, false, dtype});
    else if (m.dst == rank)
      transaction.ops.push_back({Op::Kind::recv, m.src, block_at(memory, m.to, dtype), {}, m.add, dtype});
  }
  return transaction;
}

inline std::vector<int> all_ranks(const Fabric& fabric) {
  std::vector<int> ranks(static_cast<size_t>(fabric.size()));
  for (int r = 0; r < fabric.size(); ++r) ranks[static_cast<size_t>(r)] = r;
  return ranks;
}

/// `count` random transactions on one channel: strided, uneven and empty blocks, sums in list order, locals.
inline void random_transactions(Fabric& fabric, int channel_id, DType dtype, int count, std::uint64_t seed,
                                i64 first_row) {
  std::mt19937_64 random(seed);
  const Channel channel{channel_id, all_ranks(fabric)};
  std::vector<Memory> world = random_world(fabric.size(), 2 * kHalf, dtype, random);
  Memory memory = world[static_cast<size_t>(fabric.rank())];
  for (int i = 0; i < count; ++i) {
    const std::vector<Message> messages = random_messages(fabric.size(), random);
    predict(world, messages, dtype);
    fabric.run(channel, transaction_of(messages, fabric.rank(), memory, dtype, first_row + i));
    // Strict fabrics poison what they are about to fill, nothing else: the whole memory is compared.
    expect(
        memory == world[static_cast<size_t>(fabric.rank())],
        fmt::format("memory of rank {} after transaction {} of {} (seed {})", fabric.rank(), i, name_of(dtype), seed));
  }
}

/// Five channels, one for each type, each on its own thread.
inline void concurrent_channels(Fabric& fabric, int count, std::uint64_t seed, i64 first_row) {
  const DType types[] = {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i32};
  std::vector<std::string> faults(std::size(types));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < std::size(types); ++t)
    threads.emplace_back([&, t] {
      try {
        random_transactions(fabric, static_cast<int>(t), types[t], count, seed + t, first_row);
      } catch (const std::exception& error) {
        faults[t] = error.what();
        fabric.abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) expect(fault.empty(), fault);
}

// ---- collectives against brute force ----

struct Case {
  Fabric& fabric;
  Channel channel;
  size_t at;  // index of this rank in channel.ranks
  DType dtype;
  i64 number;
  size_t members() const { return channel.ranks.size(); }
};

// Sum over members in their order; bf16 in fp32, rounded once.
inline void plain_sum(const std::vector<Memory>& partials, Memory& to, DType dtype) {
  to = partials[0];
  const i64 size = size_of(dtype);
  for (size_t at = 0; at < to.size(); at += static_cast<size_t>(size)) {
    if (dtype == DType::bf16) {
      float total = from_bf16(load<std::uint16_t>(partials[0].data() + at));
      for (size_t m = 1; m < partials.size(); ++m) total += from_bf16(load<std::uint16_t>(partials[m].data() + at));
      store(to.data() + at, round_to_bf16(total));
    } else {
      for (size_t m = 1; m < partials.size(); ++m) add_element(to.data() + at, partials[m].data() + at, dtype);
    }
  }
}

inline void check_all_gather(const Case& c, i64 elements, std::mt19937_64& random) {
  std::vector<i64> counts;
  for (size_t m = 0; m < c.members(); ++m)
    counts.push_back(random() % 4 == 0 ? 0 : static_cast<i64>(random() % static_cast<std::uint64_t>(elements + 1)));
  std::vector<Memory> pieces, mine;
  std::vector<Block> blocks;
  for (const i64 count : counts) pieces.push_back(random_world(1, count, c.dtype, random)[0]);
  for (size_t m = 0; m < c.members(); ++m) mine.push_back(m == c.at ? pieces[m] : Memory(pieces[m].size()));
  for (Memory& memory : mine) blocks.push_back(contiguous(memory.data(), static_cast<i64>(memory.size())));
  all_gather(c.fabric, c.channel, "gather", c.number, blocks);
  expect(mine == pieces, fmt::format("all_gather of {} on {} ranks", name_of(c.dtype), c.members()));
}

inline void check_reduce_scatter(const Case& c, i64 elements, bool in_place, std::mt19937_64& random) {
  std::vector<i64> counts;
  for (size_t m = 0; m < c.members(); ++m)
    counts.push_back(static_cast<i64>(random() % static_cast<std::uint64_t>(elements + 1)));
  std::vector<std::vector<Memory>> partials;  // [piece][member]
  for (const i64 count : counts)
    partials.push_back(random_world(static_cast<int>(c.members()), count, c.dtype, random));
  std::vector<Memory> mine;
  std::vector<Block> blocks;
  for (const auto& piece : partials) mine.push_back(piece[c.at]);
  for (Memory& memory : mine) blocks.push_back(contiguous(memory.data(), static_cast<i64>(memory.size())));
  Memory expected, apart(mine[c.at].size());
  plain_sum(partials[c.at], expected, c.dtype);
  Memory& out = in_place ? mine[c.at] : apart;
  reduce_scatter(c.fabric, c.channel, "scatter", c.number, blocks, contiguous(out.data(), static_cast<i64>(out.size())),
                 c.dtype);
  expect(out == expected,
         fmt::format("reduce_scatter of {} on {} ranks, in place {}", name_of(c.dtype), c.members(), in_place));
}

inline void check_all_reduce(const Case& c, i64 elements, std::mt19937_64& random) {
  const std::vector<Memory> partials = random_world(static_cast<int>(c.members()), elements, c.dtype, random);
  Memory mine = partials[c.at], expected;
  plain_sum(partials, expected, c.dtype);
  if (elements < static_cast<i64>(c.members()) && c.dtype != DType::bf16) {  // pairs of ranks, pairs of pairs, ...
    std::vector<Memory> sums = partials;
    for (size_t distance = 1; distance < sums.size(); distance *= 2)
      for (size_t i = 0; i + distance < sums.size(); i += 2 * distance) {
        Memory both;
        plain_sum({sums[i], sums[i + distance]}, both, c.dtype);
        sums[i] = both;
      }
    expected = sums[0];
  }
  all_reduce(c.fabric, c.channel, "reduce", c.number, mine.data(), elements, c.dtype);
  expect(mine == expected, fmt::format("all_reduce of {} {} on {} ranks", elements, name_of(c.dtype), c.members()));
}

inline void check_maximum(const Case& c, i64 elements, std::mt19937_64& random) {
  const std::vector<Memory> values = random_world(static_cast<int>(c.members()), elements, c.dtype, random);
  Memory mine = values[c.at], expected = values[0];
  for (size_t m = 1; m < c.members(); ++m)
    for (i64 i = 0; i < elements; ++i) {
      const i64 at = i * size_of(c.dtype);
      const auto value = [&](const Memory& memory) {
        return c.dtype == DType::f32 ? static_cast<double>(load<float>(memory.data() + at))
                                     : load<double>(memory.data() + at);
      };
      if (value(values[m]) > value(expected))
        std::memcpy(expected.data() + at, values[m].data() + at, static_cast<size_t>(size_of(c.dtype)));
    }
  all_reduce_max(c.fabric, c.channel, "maximum", c.number, mine.data(), elements, c.dtype);
  expect(mine == expected, fmt::format("all_reduce_max of {} {} on {} ranks", elements, name_of(c.dtype), c.members()));
}

inline void check_blobs(const Case& c, std::mt19937_64& random) {
  std::vector<Memory> blobs;
  for (size_t m = 0; m < c.members(); ++m)
    blobs.push_back(random_world(1, static_cast<i64>(random() % 50) * static_cast<i64>(m % 3), DType::bf16, random)[0]);
  expect(all_gather_blobs(c.fabric, c.channel, "blobs", c.number, blobs[c.at]) == blobs,
         fmt::format("blobs of {} ranks", c.members()));
  const std::span<const std::byte> mine =
      c.at == 0 ? std::span<const std::byte>(blobs[0]) : std::span<const std::byte>();
  expect(broadcast_blob(c.fabric, c.channel, "blob", c.number, mine) == blobs[0],
         fmt::format("blob to {} ranks", c.members()));
}

/// All collectives among the first k ranks, in rising and falling order, for every k.
inline void collectives(Fabric& fabric, int channel_id, std::uint64_t seed, i64 number) {
  for (int k = 1; k <= fabric.size(); ++k)
    for (const bool falling : {false, true}) {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(k));
      if (fabric.rank() >= k) continue;
      Channel channel{channel_id, {}};
      for (int r = 0; r < k; ++r) channel.ranks.push_back(falling ? k - 1 - r : r);
      const auto at = static_cast<size_t>(falling ? k - 1 - fabric.rank() : fabric.rank());
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64})
        for (const i64 elements : {0, 7, 1000}) {
          const Case c{fabric, channel, at, dtype, number};
          check_all_gather(c, elements, random);
          check_reduce_scatter(c, elements, true, random);
          check_reduce_scatter(c, elements, false, random);
          check_all_reduce(c, elements, random);
          if (dtype == DType::f32 || dtype == DType::f64) check_maximum(c, elements, random);
        }
      check_blobs({fabric, channel, at, DType::f32, number}, random);
    }
}

/// Encoded messages from each rank to the next: of fixed sizes, of sizes that their senders choose, small and large,
/// together with an addition whose place in the list decides the sum.
inline void encoded_messages(Fabric& fabric, int channel_id, i64 number) {
  const int next = (fabric.rank() + 1) % fabric.size(), before = (fabric.rank() + fabric.size() - 1) % fabric.size();
  for (const bool at_most : {false, true})
    for (const i64 bytes : {i64{1}, i64{13}, i64{5000}, i64{300'000}}) {
      std::vector<std::byte> mine(static_cast<size_t>(bytes), static_cast<std::byte>(fabric.rank() + 1)), came;
      std::vector<float> big{1e8F}, sum{1}, minus{-1e8F};
      Transaction t{"encoded", number, {}};
      const Channel channel{channel_id, all_ranks(fabric)};
      t.ops.push_back(
          {.kind = Op::Kind::send, .peer = next, .block = contiguous(mine.data(), bytes), .dtype = DType::u8});
      t.ops.push_back({.kind = Op::Kind::local,
                       .block = contiguous(sum.data(), 4),
                       .source = contiguous(big.data(), 4),
                       .add = true});
      t.ops.push_back({.kind = Op::Kind::recv,
                       .peer = before,
                       .block = contiguous(sum.data(), 4),
                       .dtype = DType::u8,
                       .decode =
                           [&](std::span<const std::byte> message) {
                             came.assign(message.begin(), message.end());
                             sum[0] += 1;
                           },
                       .encoded = at_most ? 2 * bytes + 100 : bytes,
                       .at_most = at_most});
      t.ops.push_back({.kind = Op::Kind::local,
                       .block = contiguous(sum.data(), 4),
                       .source = contiguous(minus.data(), 4),
                       .add = true});
      const Traffic earlier = fabric.traffic();
      fabric.run(channel, t);
      expect(came == std::vector<std::byte>(static_cast<size_t>(bytes), static_cast<std::byte>(before + 1)),
             fmt::format("{} encoded bytes of rank {}", bytes, before));
      expect(sum[0] == 0, "the message was decoded in its turn");  // both ones are lost beside 1e8
      i64 counted = 0;
      for (size_t link = 0; link < earlier.size(); ++link) counted += fabric.traffic()[link] - earlier[link];
      expect(counted == bytes, "the bytes that travelled are counted");
    }
}

/// The first rank sends the second one more than it may.
inline void too_long_message(Fabric& fabric, int channel_id, i64 number) {
  std::vector<std::byte> bytes(101);
  Transaction t{"encoded", number, {}};
  if (fabric.rank() == 0)
    t.ops.push_back({.kind = Op::Kind::send, .peer = 1, .block = contiguous(bytes.data(), 101), .dtype = DType::u8});
  if (fabric.rank() == 1)
    t.ops.push_back({.kind = Op::Kind::recv,
                     .peer = 0,
                     .block = contiguous(bytes.data(), 101),
                     .dtype = DType::u8,
                     .decode = [](std::span<const std::byte>) {},
                     .encoded = 100,
                     .at_most = true});
  fabric.run({channel_id, all_ranks(fabric)}, t);
}

constexpr std::chrono::milliseconds kShortTimeout{1000};

/// Rank 0 computes for longer than the timeout, kShortTimeout, before it sends; each other rank waits for the rank
/// before.
inline void late_work(Fabric& fabric, int channel_id, i64 number) {
  std::byte value{static_cast<unsigned char>(fabric.rank() == 0 ? 7 : 0)};
  const Block block = contiguous(&value, 1);
  if (fabric.rank() == 0)
    for (const auto began = Clock::now(); Clock::now() - began < 5 * kShortTimeout / 2; fabric.works())
      std::this_thread::sleep_for(kShortTimeout / 100);
  const Channel channel{channel_id, all_ranks(fabric)};
  const auto op = [&](Op::Kind kind, int peer) {
    fabric.run(channel, {"chain", number, {{.kind = kind, .peer = peer, .block = block, .dtype = DType::u8}}});
  };
  if (fabric.rank() > 0) op(Op::Kind::recv, fabric.rank() - 1);
  if (fabric.rank() + 1 < fabric.size()) op(Op::Kind::send, fabric.rank() + 1);
  expect(value == std::byte{7}, "what rank 0 sent");
}

}  // namespace switchyard::comm::suite
