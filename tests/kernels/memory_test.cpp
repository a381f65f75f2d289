#include "kernels/memory.hpp"

#include <ATen/ops/mm.h>
#include <c10/core/CPUAllocator.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "base/errors.hpp"
#include "kernels/linear.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

constexpr i64 kMiB = i64{1} << 20;

TEST(RankMemory, CountsLiveAndPeakInUnitsOf64Bytes) {
  RankMemory memory(kMiB);
  EXPECT_EQ(memory.capacity(), kMiB);
  void* a = memory.allocate(1);
  void* b = memory.allocate(65);
  EXPECT_EQ(memory.live(), 64 + 128);
  memory.release(a);
  EXPECT_EQ(memory.live(), 128);
  EXPECT_EQ(memory.peak(), 192);
  EXPECT_EQ(memory.reserved(), 192);
  memory.reset_peak();
  EXPECT_EQ(memory.peak(), 128);
  memory.release(b);
  EXPECT_EQ(memory.live(), 0);
  EXPECT_EQ(memory.allocate(0), nullptr);
  memory.release(nullptr);
}

TEST(RankMemory, BlocksAreAlignedAndDontOverlap) {
  RankMemory memory(kMiB);
  std::vector<std::pair<std::byte*, i64>> blocks;
  for (i64 i = 0; i < 200; ++i) {
    const i64 bytes = 1 + i * 37 % 900;
    auto* block = static_cast<std::byte*>(memory.allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
    std::memset(block, static_cast<int>(i), static_cast<std::size_t>(bytes));
    blocks.emplace_back(block, bytes);
    if (i % 3 == 2) {
      memory.release(blocks[static_cast<std::size_t>(i / 2)].first);
      blocks[static_cast<std::size_t>(i / 2)].first = static_cast<std::byte*>(memory.allocate(1));
      blocks[static_cast<std::size_t>(i / 2)].second = 0;
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (i64 j = 0; j < blocks[i].second; ++j) ASSERT_EQ(blocks[i].first[j], static_cast<std::byte>(i));
  }
}

TEST(RankMemory, ReusesTheLowestHoleThatFits) {
  RankMemory memory(kMiB);
  void* a = memory.allocate(640);
  void* b = memory.allocate(64);
  void* c = memory.allocate(128);
  void* d = memory.allocate(64);
  memory.release(a);
  memory.release(c);
  EXPECT_EQ(memory.allocate(128), a) << "the first hole by address, not the tightest";
  EXPECT_EQ(memory.allocate(576), static_cast<std::byte*>(d) + 64) << "neither hole is large enough";
  EXPECT_EQ(memory.allocate(128), static_cast<std::byte*>(a) + 128);
  memory.release(b);
  memory.release(d);
}

TEST(RankMemory, NeighbouringHolesBecomeOneInWhateverOrderTheyAreFreed) {
  const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    RankMemory memory(3 * 1024);
    void* blocks[] = {memory.allocate(1024), memory.allocate(1024), memory.allocate(1024)};
    for (const int i : order) memory.release(blocks[i]);
    EXPECT_EQ(memory.allocate(3 * 1024), blocks[0]);
  }
}

TEST(RankMemory, RefusesWhatExceedsTheBudgetAndSaysByHowMuch) {
  RankMemory memory(1024);
  void* a = memory.allocate(512);
  try {
    memory.allocate(1000);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "rank memory budget of 1024 bytes exceeded: need 1000 bytes, live 512 of 1024. Raise "
                 "run.memory_budget, or the memory of run.emulate's devices, or use fewer tokens per micro-batch, "
                 "recomputation, or a strategy with more ranks per replica.");
  }
  EXPECT_EQ(memory.live(), 512);
  void* b = memory.allocate(256);
  memory.release(a);
  void* c = memory.allocate(700);
  EXPECT_GT(c, b) << "enough is free, though not in one piece below the capacity";
  EXPECT_THROW(memory.allocate(128), UserError);
  memory.release(c);
  memory.release(b);
  EXPECT_NE(memory.allocate(1024), nullptr);
  EXPECT_THROW(RankMemory(0), UserError);
}

TEST(RankMemory, WaitsForWhatAnotherThreadReleasesIfItHasPatience) {
  RankMemory memory(1024, std::chrono::minutes(1));
  void* a = memory.allocate(512);
  void* b = memory.allocate(512);
  std::jthread other([&] {
    memory.release(a);
    memory.release(b);
  });
  void* c = memory.allocate(1024);
  EXPECT_EQ(memory.peak(), 1024);
  memory.release(c);
  RankMemory impatient(1024, std::chrono::milliseconds(1));
  void* d = impatient.allocate(512);
  EXPECT_THROW(impatient.allocate(1024), UserError) << "nobody releases anything";
  impatient.release(d);
}

TEST(RankMemory, RefusesToReleaseTwice) {
  RankMemory memory(1024);
  void* a = memory.allocate(64);
  memory.release(a);
  EXPECT_THROW(memory.release(a), InternalError);
}

TEST(RankMemory, ServesManyThreadsAtOnce) {
  RankMemory memory(64 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 2000; ++i) {
        auto* block = static_cast<unsigned char*>(memory.allocate(64 + (i * 131 + t) % 5000));
        block[0] = static_cast<unsigned char>(t);
        if (block[0] != t) std::abort();
        memory.release(block);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.live(), 0);
  EXPECT_NE(memory.allocate(64 * kMiB), nullptr) << "all holes are one again";
}

TEST(RankAllocator, TensorsComeFromTheThreadsMemory) {
  install_rank_allocator();
  install_rank_allocator();
  RankMemory memory(64 * kMiB), inner(64 * kMiB);
  const auto before = filled({1024}, at::kFloat, 1);
  EXPECT_EQ(memory.live(), 0);
  {
    const MemoryScope scope(&memory);
    const auto x = filled({1024}, at::kFloat, 1);
    EXPECT_EQ(memory.live(), 4096);
    {
      const MemoryScope other(&inner);
      const auto y = filled({2048}, at::kFloat, 1);
      EXPECT_EQ(inner.live(), 8192);
      const MemoryScope none(nullptr);
      const auto z = filled({2048}, at::kFloat, 1);
      EXPECT_EQ(inner.live() + memory.live(), 8192 + 4096);
    }
    EXPECT_EQ(inner.live(), 0);
    const auto empty = hole({0}, at::kFloat);
    EXPECT_EQ(memory.live(), 4096);
  }
  EXPECT_EQ(memory.live(), 0);
}

TEST(RankAllocator, TensorsMayBeFreedOnAnotherThreadAndOutsideTheScope) {
  install_rank_allocator();
  RankMemory memory(kMiB);
  at::Tensor x;
  {
    const MemoryScope scope(&memory);
    x = filled({1024}, at::kFloat, 1);
  }
  EXPECT_EQ(memory.live(), 4096);
  std::thread([moved = std::move(x)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(memory.live(), 0);
}

TEST(RankAllocator, PlainBlocksOfLibrariesComeFromTheThreadsMemoryAndMayComeBackAfterIt) {
  install_rank_allocator();
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  void *late = nullptr, *outside = allocator.raw_allocate(1000);
  {
    RankMemory memory(kMiB);
    const MemoryScope scope(&memory);
    void* block = allocator.raw_allocate(1000);
    late = allocator.raw_allocate(100);
    EXPECT_EQ(memory.live(), 1024 + 128);
    std::thread([&] { allocator.raw_deallocate(block); }).join();
    allocator.raw_deallocate(outside);
    EXPECT_EQ(memory.live(), 128);
  }
  allocator.raw_deallocate(late);
}

TEST(RankAllocator, TemporariesOfOperatorsAreCounted) {
  install_rank_allocator();
  RankMemory memory(64 * kMiB);
  const MemoryScope scope(&memory);
  const auto x = random({64, 64}, at::kBFloat16, 1), dy = random({64, 64}, at::kBFloat16, 2);
  auto dw = filled({64, 64}, at::kFloat, 0);
  memory.reset_peak();
  const i64 live = memory.live();
  linear_dw(dw, dy, x);  // casts both factors to fp32
  EXPECT_EQ(memory.live(), live);
  EXPECT_GE(memory.peak(), live + 2 * 64 * 64 * 4);
}

TEST(RankAllocator, ABudgetTooSmallStopsTheOperatorWithTheBudgetsMessage) {
  install_rank_allocator();
  RankMemory memory(4096);
  const MemoryScope scope(&memory);
  try {
    const auto x = filled({2000}, at::kFloat, 1);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("need 8000 bytes, live 0 of 4096"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace switchyard::kernels
