#include "runtime/collectives.hpp"

#include <gmock/gmock.h>

#include <future>

#include "base/errors.hpp"
#include "bindings/one_call.hpp"
#include "comm/forwarding_fabric.hpp"
#include "comm/testing_fabric.hpp"
#include "one_reshard.hpp"

namespace switchyard::runtime {
namespace {

const layout::Layout kRows{{{0}, {}}, {}}, kWhole{{{}, {}}, {}};

// Nothing is sent before the gate opens.
class GatedFabric final : public comm::ForwardingFabric {
 public:
  GatedFabric(comm::Fabric& inner, std::shared_future<void> gate) : ForwardingFabric(inner), gate_(std::move(gate)) {}
  void run(const comm::Channel& channel, const comm::Transaction& transaction) override {
    gate_.wait();
    inner().run(channel, transaction);
  }

 private:
  std::shared_future<void> gate_;
};

TEST(Collectives, GoOnBesideWhoLaunchedThem) {
  const at::Tensor whole = wave({kT, kH}, 1);
  const auto ends = comm::run_ranks(comm::thread_fabrics(2, cluster::uniform(1, 2), {}), [&](comm::Fabric& inner) {
    std::promise<void> gate;
    GatedFabric fabric(inner, gate.get_future().share());
    OneReshard one(kRows, kWhole, {0, 0});
    Stream stream([] {});
    Collectives collectives(&stream);
    const at::Tensor part = whole.narrow(0, kT / 2 * inner.rank(), kT / 2);
    const at::Tensor first = one.output(inner.rank()), second = one.output(inner.rank());
    i64 number = 0;
    EXPECT_FALSE(
        collectives.launch(0, one.call(fabric, part, first, number), false));  // comes back though nothing is sent yet
    EXPECT_FALSE(collectives.launch(1, one.call(fabric, part, second, number), true)) << "behind the other one";
    gate.set_value();
    for (const size_t instr : {0, 1}) {
      const auto times = collectives.wait(instr);
      ASSERT_TRUE(times);
      EXPECT_GE(times->end.seconds_since(times->begin), 0);
    }
    EXPECT_TRUE(first.equal(whole));
    EXPECT_TRUE(second.equal(whole));
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

TEST(Collectives, RunOnTheSpotWhereNothingRunsBesideThem) {
  const at::Tensor whole = wave({kT, kH}, 1);
  const auto ends = comm::run_ranks(comm::thread_fabrics(2, cluster::uniform(1, 2), {}), [&](comm::Fabric& fabric) {
    OneReshard one(kRows, kWhole, {0, 0});
    Stream stream([] {});
    const at::Tensor part = whole.narrow(0, kT / 2 * fabric.rank(), kT / 2);
    i64 number = 0;
    for (const bool has_stream : {true, false}) {
      Collectives collectives(has_stream ? &stream : nullptr);
      const at::Tensor out = one.output(fabric.rank());
      EXPECT_TRUE(collectives.launch(0, one.call(fabric, part, out, number), has_stream));
      EXPECT_TRUE(out.equal(whole));
      EXPECT_FALSE(collectives.wait(0));
    }
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

TEST(Collectives, ThatFailTellWhoWaits) {
  auto fabrics = comm::thread_fabrics(2, cluster::uniform(1, 2), {});
  fabrics[1] = std::make_unique<comm::FaultyFabric>(std::move(fabrics[1]), 1, comm::FaultyFabric::Fault::fail);
  const auto ends = comm::run_ranks(fabrics, [&](comm::Fabric& fabric) {
    OneReshard one(kRows, kWhole, {0, 0});
    Stream stream([] {});
    Collectives collectives(&stream);
    const at::Tensor part = wave({kT / 2, kH}, 1), out = one.output(fabric.rank());
    i64 number = 0;
    collectives.launch(0, one.call(fabric, part, out, number), false);
    EXPECT_THROW(
        {
          try {
            collectives.wait(0);
          } catch (const ClusterError& error) {
            fabric.abort(error.what());
            throw;
          }
        },
        ClusterError);
  });
  EXPECT_EQ(ends, std::vector<std::string>(2));
}

TEST(Collectives, AreWaitedForInTheirOrder) {
  auto fabrics = comm::thread_fabrics(1, cluster::uniform(1, 1), {});
  Collectives collectives(nullptr);
  EXPECT_THROW(collectives.wait(0), InternalError);
}

}  // namespace
}  // namespace switchyard::runtime
