#include "runtime/statistics.hpp"

#include <gtest/gtest.h>

#include "../standin/device.hpp"
#include "bindings/one_call.hpp"
#include "ir/operators/rms_norm.hpp"

namespace switchyard::runtime {
namespace {

// A norm on 2 x 2 ranks, which have rows of 4 features in the given cuts: calls visit(ranks, fabric) on each.
template <class Visit>
void on_four_ranks(const std::vector<int>& cuts, const Visit& visit) {
  const auto ends = comm::run_ranks(4, {}, [&](comm::Fabric& fabric) {
    i64 number = 0;
    OneCall one(std::make_shared<ir::RmsNorm>(0.5, 0));
    one.stage.replica = {{{"outer", 2}, {"inner", 2}}, {0, 1, 2, 3}};
    one.instr.in = {one.buffer(wave({3, 4}, 1)), one.buffer(wave({4}, 2))};
    one.stage.buffers[0].layout.split[1] = cuts;
    const ReplicaLink replica{&fabric, {7, {0, 1, 2, 3}}, &number};
    const KernelCall call{one.instr, one.stage, fabric.rank(), {}, {}, one.feeds, one.rope, replica, DType::f64};
    visit(StatisticRanks(call), fabric);
  });
  EXPECT_EQ(ends, std::vector<std::string>(4));
}

at::Tensor ranks_number(int rank) { return wave({3}).mul(0).add(rank); }

TEST(StatisticRanks, SumAmongThoseWithPartsOfTheSameRows) {
  on_four_ranks({1}, [](const StatisticRanks& ranks, const comm::Fabric& fabric) {
    const int rank = fabric.rank();
    ASSERT_TRUE(ranks);
    at::Tensor sum = ranks_number(rank), most = ranks_number(rank);
    ranks.sum("sum", sum);
    ranks.maximum("maximum", most);
    EXPECT_EQ(sum.sum().item<double>(), rank < 2 ? 3 * (0 + 1) : 3 * (2 + 3));
    EXPECT_EQ(most.sum().item<double>(), rank < 2 ? 3 * 1 : 3 * 3);
  });
  on_four_ranks({0, 1}, [](const StatisticRanks& ranks, const comm::Fabric& fabric) {
    at::Tensor sum = ranks_number(fabric.rank());
    ranks.sum("sum", sum);
    EXPECT_EQ(sum.sum().item<double>(), 3 * (0 + 1 + 2 + 3));
  });
}

// The report and the simulator count a reduction and a gather, on hosts and devices.
TEST(StatisticRanks, SendAPartOfTheStatisticsToEachOther) {
  const at::Device other = standin::test_device().is_cpu() ? standin::device() : standin::test_device();
  for (const at::Device& device : {at::Device(at::kCPU), other})
    for (const bool maximum : {false, true})
      on_four_ranks({0, 1}, [&](const StatisticRanks& ranks, const comm::Fabric& fabric) {
        at::Tensor statistics = wave({8}).mul(0).add(fabric.rank()).to(device);
        const auto bytes = [&] { return fabric.traffic()[0] + fabric.traffic()[1] + fabric.traffic()[2]; };
        const i64 before = bytes();
        maximum ? ranks.maximum("maximum", statistics) : ranks.sum("sum", statistics);
        EXPECT_EQ(statistics.cpu().sum().item<double>(), 8 * (maximum ? 3 : 6));
        EXPECT_EQ(bytes() - before, 2 * 3 * 2 * 8) << "two of 8 numbers to three others, twice";
      });
}

TEST(StatisticRanks, AreNoneWhereRowsAreWhole) {
  on_four_ranks({}, [](const StatisticRanks& ranks, const comm::Fabric&) { EXPECT_FALSE(ranks); });
}

}  // namespace
}  // namespace switchyard::runtime
