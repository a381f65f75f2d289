// Collectives of groups on the fabric of NCCL: what nccl_fabric_test has for messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>

#include "base/bfloat16.hpp"
#include "comm/block.hpp"
#include "comm/collectives.hpp"
#include "nccl_ranks.hpp"

namespace switchyard::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr auto kHasty = 1s;
constexpr auto kCalls = {GroupCall::all_gather, GroupCall::reduce_scatter, GroupCall::all_reduce};
constexpr const char* kFunctions[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce"};

// A matrix on a rank whose pieces are cut along its rows, or along its columns, which makes them strided.
struct Matrix {
  i64 rows = 0, columns = 0;  // size of a piece
  int pieces = 1;
  bool by_columns = false;
  DType type = DType::f32;
  std::vector<std::byte> memory{};

  void resize() { memory.resize(static_cast<size_t>(rows * columns * pieces * size_of(type))); }
  i64 piece_bytes() const { return rows * columns * size_of(type); }
  Block piece(const StreamDevice& device, int i) {
    const i64 row = columns * size_of(type);
    Block block = by_columns ? Block{memory.data() + i * row, rows, row, row * pieces}
                             : contiguous(memory.data() + i * piece_bytes(), piece_bytes());
    return device.on_device(block);
  }
  std::vector<Block> all(const StreamDevice& device) {
    std::vector<Block> blocks;
    for (int i = 0; i < pieces; ++i) blocks.push_back(piece(device, i));
    return blocks;
  }
};

void set(DType type, std::byte* at, double value) {
  if (type == DType::f32) {
    const auto x = static_cast<float>(value);
    std::memcpy(at, &x, 4);
  } else if (type == DType::f64) {
    std::memcpy(at, &value, 8);
  } else {
    const std::uint16_t x = bfloat16_bits(static_cast<float>(value));
    std::memcpy(at, &x, 2);
  }
}

void fill(Matrix& m, unsigned seed) {
  m.resize();
  std::mt19937 random(seed);
  for (i64 i = 0; i < std::ssize(m.memory) / size_of(m.type); ++i)
    set(m.type, m.memory.data() + i * size_of(m.type), static_cast<double>(random() % 2001) / 7.0 - 140);
}

// A piece's bytes without gaps.
std::vector<std::byte> packed(Matrix& m, const StreamDevice& device, int piece) {
  std::vector<std::byte> bytes(static_cast<size_t>(m.piece_bytes()));
  Block from = m.piece(device, piece);
  from.device = nullptr;
  copy_block(contiguous(bytes.data(), m.piece_bytes()), from);
  return bytes;
}

// All matrices of a group's ranks are functions of seed and rank, so that each rank knows what has to come.
struct Case {
  GroupCall call = GroupCall::all_gather;
  std::vector<int> ranks;
  i64 rows = 3, columns = 5;
  bool by_columns = false, add = false, in_place = false;
  DType type = DType::f32;
  unsigned seed = 1;

  int n() const { return static_cast<int>(ranks.size()); }
  Matrix given(int place) const {
    Matrix m{rows, columns, call == GroupCall::reduce_scatter ? n() : 1, by_columns, type};
    fill(m, seed + 100 * static_cast<unsigned>(place));
    return m;
  }
  Matrix before(int place) const {
    Matrix m{rows, columns, call == GroupCall::all_gather ? n() : 1, by_columns, type};
    fill(m, seed + 100 * static_cast<unsigned>(place) + 50);
    return m;
  }
};

struct Running {
  Case what;
  Matrix in, out;
  Collective collective;
};

std::shared_ptr<Running> begun(const Case& c, int rank, const StreamDevice& device) {
  const auto r = device.freed_in_order(std::make_unique<Running>());
  r->what = c;
  const auto place = static_cast<int>(std::ranges::find(c.ranks, rank) - c.ranks.begin());
  r->in = c.given(place);
  r->out = c.before(place);
  r->collective = {.call = c.call, .ranks = c.ranks, .add = c.add, .dtype = c.type};
  r->collective.in = r->in.all(device);
  r->collective.out = r->out.all(device);
  if (c.in_place && c.call == GroupCall::all_gather) {
    const auto bytes = packed(r->in, device, 0);
    Block to = r->out.piece(device, place);
    to.device = nullptr;
    copy_block(to, contiguous(const_cast<std::byte*>(bytes.data()), std::ssize(bytes)));
    r->collective.in = {r->out.piece(device, place)};
  } else if (c.in_place && c.call == GroupCall::all_reduce) {
    r->collective.out = r->collective.in;
  }
  return r;
}

// Sums of ranks are in the order of the group, as the stand-in makes them.
void expect_done(Running& r, int rank, const StreamDevice& device) {
  const Case& c = r.what;
  const auto place = static_cast<int>(std::ranges::find(c.ranks, rank) - c.ranks.begin());
  Matrix& got = c.in_place && c.call == GroupCall::all_reduce ? r.in : r.out;
  for (int i = 0; i < got.pieces; ++i) {
    Matrix first = c.given(c.call == GroupCall::all_gather ? i : 0);
    const int piece = c.call == GroupCall::reduce_scatter ? place : 0;
    std::vector<std::byte> expected = packed(first, device, piece);
    const Block sum = contiguous(expected.data(), std::ssize(expected));
    for (int other = 1; sums(c.call) && other < c.n(); ++other) {
      Matrix next = c.given(other);
      std::vector<std::byte> partial = packed(next, device, piece);
      add_block(sum, contiguous(partial.data(), std::ssize(partial)), c.type);
    }
    if (c.add) {
      Matrix old = c.before(place);
      std::vector<std::byte> had = packed(old, device, 0);
      add_block(contiguous(had.data(), std::ssize(had)), sum, c.type);
      expected = had;
    }
    EXPECT_EQ(packed(got, device, i), expected) << name_of(c.call) << " of " << c.n() << ", piece " << i;
  }
}

void run_cases(Fabric& fabric, const StreamDevice& device, const std::vector<Case>& cases, i64 number) {
  std::vector<std::shared_ptr<Running>> running;
  Transaction t{"collectives", number, {}};
  for (const Case& c : cases) {
    if (std::ranges::count(c.ranks, fabric.rank()) == 0) continue;
    running.push_back(begun(c, fabric.rank(), device));
    t.collectives.push_back(running.back()->collective);
  }
  fabric.run(everyone(fabric, 1), t);
  device.synchronise();
  for (const auto& r : running) {
    for (const std::vector<Block>* blocks : {&r->collective.in, &r->collective.out})
      for (const Block& block : *blocks) device.settle(block);
    expect_done(*r, fabric.rank(), device);
  }
}

const std::vector<int> kAll{0, 1, 2}, kTurned{2, 0, 1};

TEST(NcclCollectives, GiveTheBitsOfSumsInTheOrderOfRanksWhateverTheBlocksAre) {
  const long before[] = {nccl_calls(kFunctions[0]), nccl_calls(kFunctions[1]), nccl_calls(kFunctions[2])};
  for (const bool strict : {false, true})
    EXPECT_THAT(run_nccl(3, with_groups({{1, kAll}, {1, kTurned}}, 120s, strict),
                         [](Fabric& fabric, const StreamDevice& device) {
                           i64 number = 0;
                           for (const GroupCall call : kCalls)
                             for (const DType type : {DType::f32, DType::f64, DType::bf16})
                               for (const bool by_columns : {false, true})
                                 for (const bool turned : {false, true})
                                   for (const int how : {0, 1, 2}) {
                                     const bool add = how == 1 && sums(call), in_place = how == 2;
                                     const i64 first = number++;
                                     run_cases(fabric, device,
                                               {{.call = call,
                                                 .ranks = turned ? kTurned : kAll,
                                                 .by_columns = by_columns,
                                                 .add = add,
                                                 .in_place = in_place,
                                                 .type = type,
                                                 .seed = static_cast<unsigned>(first)}},
                                               number);
                                   }
                         }),
                Each(""));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(nccl_calls(kFunctions[i]) - before[i], 2 * 3 * 36) << kFunctions[i];
}

// Every rank is in two groups, so that an order of groups that differs between ranks would hang.
TEST(NcclCollectives, SeveralGroupsOfOneTransactionHaveOneOrderOnAllRanks) {
  const std::vector<Channel> groups{{1, {0, 1}}, {1, {2, 3}}, {1, {1, 2}}, {1, {3, 0}}};
  EXPECT_THAT(run_nccl(4, with_groups(groups, 60s),
                       [&](Fabric& fabric, const StreamDevice& device) {
                         std::mt19937 random(static_cast<unsigned>(fabric.rank()));
                         for (int number = 1; number <= 10; ++number) {
                           std::vector<Case> cases;
                           for (size_t g = 0; g < groups.size(); ++g)
                             cases.push_back({.call = GroupCall::reduce_scatter,
                                              .ranks = groups[g].ranks,
                                              .seed = static_cast<unsigned>(10 * number) + static_cast<unsigned>(g)});
                           std::ranges::shuffle(cases, random);
                           run_cases(fabric, device, cases, number);
                         }
                       }),
              Each(""));
}

TEST(NcclCollectives, StandBesideMessagesOfTheirTransaction) {
  EXPECT_THAT(run_nccl(2, with_groups({{1, {0, 1}}}, 60s),
                       [](Fabric& fabric, const StreamDevice& device) {
                         const Case c{.call = GroupCall::all_reduce, .ranks = {0, 1}};
                         const auto r = begun(c, fabric.rank(), device);
                         float x = fabric.rank() == 0 ? 7 : 0;
                         const Block block = device.block(&x, 4);
                         Op op{.kind = fabric.rank() == 0 ? Op::Kind::send : Op::Kind::recv,
                               .peer = 1 - fabric.rank(),
                               .block = block};
                         fabric.run(everyone(fabric, 1), {"both", 1, {op}, {r->collective}});
                         device.settle(block);
                         EXPECT_EQ(x, 7);
                         expect_done(*r, fabric.rank(), device);
                         for (const std::vector<Block>* blocks : {&r->collective.in, &r->collective.out})
                           for (const Block& b : *blocks) device.settle(b);
                       }),
              Each(""));
}

TEST(NcclCollectives, AreServedToGroupsInTheirOrderOnTheirChannelAndSumsIfTheyMayHaveAnyOrder) {
  for (const bool deterministic : {false, true}) {
    NcclOptions options = with_groups({{1, {1, 0}}}, 60s);
    options.deterministic = deterministic;
    EXPECT_THAT(run_nccl(2, options,
                         [&](Fabric& fabric, const StreamDevice&) {
                           EXPECT_TRUE(fabric.serves_any());
                           const std::vector<int> group{1, 0}, other{0, 1};
                           EXPECT_TRUE(fabric.serves(1, GroupCall::all_gather, group));
                           EXPECT_FALSE(fabric.serves(1, GroupCall::all_gather, other));
                           EXPECT_FALSE(fabric.serves(2, GroupCall::all_gather, group));
                           EXPECT_EQ(fabric.serves(1, GroupCall::all_reduce, group), !deterministic);
                           EXPECT_EQ(fabric.serves(1, GroupCall::reduce_scatter, group), !deterministic);
                         }),
                Each(""));
  }
  EXPECT_THAT(run_nccl(2, standin(60s), [](Fabric& fabric, const StreamDevice&) { EXPECT_FALSE(fabric.serves_any()); }),
              Each(""));
}

TEST(NcclCollectives, CountTheBytesOfDirectMessages) {
  EXPECT_THAT(
      run_nccl(4, with_groups({{1, {0, 1, 2}}}, 60s),  // rank 2 is on another host
               [](Fabric& fabric, const StreamDevice& device) {
                 i64 number = 0;
                 for (const GroupCall call : kCalls)
                   run_cases(fabric, device, {{.call = call, .ranks = {0, 1, 2}, .rows = 1, .columns = 3}}, ++number);
                 // A piece of 12 bytes to each for two calls, of the third one its parts of 4 bytes twice.
                 const std::vector<Traffic> expected{{0, 32, 32}, {0, 32, 32}, {0, 0, 64}, {}};
                 EXPECT_EQ(fabric.traffic(), expected[static_cast<size_t>(fabric.rank())]);
               }),
      Each(""));
}

// An all-reduce of two ranks until a later call throws: what happens on a device ends a later call.
void reduce_until_it_fails(Fabric& fabric, const StreamDevice& device, const std::string& name, i64 columns = 5) {
  const auto r = begun({.call = GroupCall::all_reduce, .ranks = {0, 1}, .columns = columns}, fabric.rank(), device);
  fabric.run(everyone(fabric, 1), {name, 1, {}, {r->collective}});
  for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < 60s;) {
    fabric.run(everyone(fabric, 2), {"later", 1, {}});
    std::this_thread::sleep_for(5ms);
  }
}

std::vector<std::string> ends_of(const NcclOptions& options) {
  return run_nccl(2, options,
                  [](Fabric& fabric, const StreamDevice& device) { reduce_until_it_fails(fabric, device, "sums"); });
}

TEST(NcclCollectives, ThatHangOnADeviceEndTheJobWithRankTransactionAndPeer) {
  const NcclFault fault("hang");
  EXPECT_THAT(ends_of(with_groups({{1, {0, 1}}}, kHasty)),
              Each(ContainsRegex("stopped: rank [01] .host [ab].: \"sums\" has exchanged nothing with rank [01] "
                                 "for 1 s")));
}

TEST(NcclCollectives, AnAsynchronousErrorEndsTheJobOnAllRanks) {
  const NcclFault fault("async", 1);
  EXPECT_THAT(ends_of(with_groups({{1, {0, 1}}}, 60s)),
              Each(HasSubstr("rank 1 (host b): \"sums\" with rank 0 failed on the device: asynchronous error: "
                             "unhandled system error: async on purpose.")));
}

TEST(NcclCollectives, ACallThatTheLibraryRefusesEndsTheJob) {
  const NcclFault fault("collective", 0);
  EXPECT_THAT(ends_of(with_groups({{1, {0, 1}}}, 60s)),
              Each(HasSubstr("rank 0 (host a): \"sums\" with rank 1 failed on the device: ncclAllReduce: invalid "
                             "argument: collective on purpose.")));
}

TEST(NcclCollectives, APeerThatTakesNoPartEndsTheJob) {
  const auto ends = run_nccl(2, with_groups({{1, {0, 1}}}, kHasty), [](Fabric& fabric, const StreamDevice& device) {
    if (fabric.rank() == 1) reduce_until_it_fails(fabric, device, "alone");
    while (!fabric.failure()) std::this_thread::sleep_for(5ms);
    fabric.run(everyone(fabric, 2), {"later", 1, {}});
  });
  EXPECT_THAT(ends, Each(HasSubstr("rank 1 (host b): \"alone\" has exchanged nothing with rank 0 for 1 s.")));
}

TEST(NcclCollectives, RanksThatDisagreeInSizeEndByTheTimeoutAndStrictOnesSayHow) {
  const auto ends = [](bool strict) {
    return run_nccl(2, with_groups({{1, {0, 1}}}, kHasty, strict), [](Fabric& fabric, const StreamDevice& device) {
      reduce_until_it_fails(fabric, device, "odd", 5 + fabric.rank());
    });
  };
  EXPECT_THAT(ends(false), Each(HasSubstr("\"odd\" has exchanged nothing with rank")));
  EXPECT_THAT(
      ends(true),
      Each(AnyOf(HasSubstr("\"odd\" expects transaction 1, 60 bytes, f32 from rank 1, which sends transaction 1, "
                           "72 bytes"),
                 HasSubstr("\"odd\" expects transaction 1, 72 bytes, f32 from rank 0, which sends transaction 1, "
                           "60 bytes"))));
}

// NCCL itself would add anything to anything.
TEST(NcclCollectives, TheStandinLetsNoOtherCallOfAsManyBytesPass) {
  for (const bool other_call : {true, false}) {
    const auto ends = run_nccl(2, with_groups({{1, {0, 1}}}, kHasty), [&](Fabric& fabric, const StreamDevice& device) {
      const auto x = device.freed_in_order(std::make_unique<std::array<float, 8>>());
      Collective c{.call = GroupCall::all_reduce, .ranks = {0, 1}, .in = {device.block(x.get(), 16)}};
      c.out = c.in;
      if (fabric.rank() == 1 && !other_call) c.dtype = DType::i32;
      if (fabric.rank() == 1 && other_call) {
        const Block second = device.block(x->data() + 4, 16);
        c.call = GroupCall::all_gather, c.out = {c.in[0], second}, c.in = {second};
      }
      fabric.run(everyone(fabric, 1), {"odd", 1, {}, {c}});
      while (!fabric.failure()) std::this_thread::sleep_for(5ms);
      fabric.run(everyone(fabric, 2), {"later", 1, {}});
    });
    EXPECT_THAT(ends, Each(HasSubstr("\"odd\" has exchanged nothing with rank")));
  }
}

TEST(NcclCollectives, StrictRanksThatDisagreeInTheCallSaySo) {
  const auto ends = run_nccl(2, with_groups({{1, {0, 1}}}, 60s, true), [](Fabric& fabric, const StreamDevice& device) {
    run_cases(fabric, device,
              {{.call = fabric.rank() == 0 ? GroupCall::all_reduce : GroupCall::reduce_scatter, .ranks = {0, 1}}}, 1);
  });
  EXPECT_THAT(ends, Each(AnyOf(HasSubstr("\"collectives\" has all_reduce with rank 1, which has reduce_scatter."),
                               HasSubstr("\"collectives\" has reduce_scatter with rank 0, which has all_reduce."))));
}

TEST(NcclCollectives, StrictModePoisonsWhatIsToCome) {
  const NcclFault fault("hang");
  EXPECT_THAT(run_nccl(2, with_groups({{1, {0, 1}}}, kHasty, true),
                       [](Fabric& fabric, const StreamDevice& device) {
                         const auto r = begun({.call = GroupCall::all_reduce, .ranks = {0, 1}}, fabric.rank(), device);
                         fabric.run(everyone(fabric, 1), {"sums", 1, {}, {r->collective}});
                         while (!fabric.failure()) std::this_thread::sleep_for(5ms);
                         device.synchronise();
                         EXPECT_THAT(r->out.memory, Each(std::byte{0xFF}));
                       }),
              Each(""));
}

TEST(NcclCollectives, BlocksThatAreNotThoseOfTheGroupAreRefused) {
  const auto end = [](std::vector<int> ranks, size_t pieces, i64 bytes) {
    return run_nccl(2, with_groups({{1, {0, 1}}}, 60s), [&](Fabric& fabric, const StreamDevice& device) {
      if (fabric.rank() == 1) return;
      std::vector<float> x(8), y(8);
      const std::vector<Block> out(pieces, device.block(x.data(), bytes));
      Collective c{.call = GroupCall::all_gather, .ranks = ranks, .in = {device.block(y.data(), 8)}, .out = out};
      fabric.run(everyone(fabric, 1), {"odd", 1, {}, {c}});
    })[0];
  };
  const std::string blocks = "rank 0: \"odd\" all_gather: blocks that are not those of 2 ranks";
  EXPECT_EQ(end({0, 1}, 1, 8), blocks);
  EXPECT_EQ(end({0, 1}, 2, 12), blocks);
  EXPECT_EQ(end({1, 2}, 2, 8), "rank 0: \"odd\" all_gather: not a group of channel 1 with this rank: 1, 2");
  EXPECT_THAT(end({1, 0}, 2, 8), HasSubstr("\"odd\" moves blocks of devices on channel 1 of ranks 1, 0, but only"));
}

TEST(NcclCollectives, OtherFabricsRefuseThem) {
  const auto fabrics = thread_fabrics(2, two_hosts(2), {});
  std::vector<float> x(2);
  const Block block = contiguous(x.data(), 4);
  const Collective c{.call = GroupCall::all_reduce, .ranks = {0, 1}, .in = {block}, .out = {block}};
  EXPECT_FALSE(fabrics[0]->serves_any());
  EXPECT_FALSE(fabrics[0]->serves(1, GroupCall::all_reduce, c.ranks));
  try {
    fabrics[0]->run({1, {0, 1}}, {"sum", 1, {}, {c}});
    ADD_FAILURE();
  } catch (const std::exception& error) {
    EXPECT_EQ(error.what(), std::string("rank 0: \"sum\" has collectives, which its fabric does not serve"));
  }
}

TEST(NcclCollectives, GroupsThatCannotBeConnectedSaySo) {
  NcclOptions options = with_groups({{3, {2, 1}}, {3, {0, 1}}}, 60s);
  options.channels = {};
  const NcclFault fault("init", 1);  // an error of the communicator
  const auto ends = run_nccl(3, options, [](Fabric& fabric, const StreamDevice&) {
    while (!fabric.failure()) std::this_thread::sleep_for(5ms);
    fabric.run(everyone(fabric, 2), {"later", 1, {}});
  });
  EXPECT_THAT(ends, Each(HasSubstr("rank 1 (host a): \"connecting channel 3 of ranks 2, 1\" with rank 2 failed on the "
                                   "device")));
}

}  // namespace
}  // namespace switchyard::comm
