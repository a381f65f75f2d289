#include "comm/metered_fabric.hpp"

#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "base/errors.hpp"

namespace switchyard::comm {
namespace {

constexpr double kBurnt = 0.02;  // seconds of processor time

void burn() {
  for (const double began = thread_seconds(); thread_seconds() - began < kBurnt;) {
  }
}

// A fabric whose transactions only compute.
class BurningFabric final : public Fabric {
 public:
  int rank() const override { return 3; }
  int size() const override { return 4; }
  void run(const Channel&, const Transaction& transaction) override {
    burn();
    if (transaction.name == "fails") throw ClusterError("on purpose");
  }
  void abort(const std::string&) override {}
  Traffic traffic() const override { return {1, 2, 3}; }
  const cluster::Cluster& cluster() const override { return cluster_; }

 private:
  cluster::Cluster cluster_;
};

TEST(MeteredFabric, leaves_out_the_processor_time_of_transactions) {
  BurningFabric inner;
  MeteredFabric fabric(inner, inner.cluster());
  const double began = computing_seconds(), all = thread_seconds();
  fabric.run({}, {.name = "works", .number = 0, .ops = {}});
  EXPECT_THROW(fabric.run({}, {.name = "fails", .number = 1, .ops = {}}), ClusterError);
  EXPECT_LT(computing_seconds() - began, kBurnt) << "two transactions took twice that";
  EXPECT_GE(thread_seconds() - all, 2 * kBurnt);
  burn();
  EXPECT_GE(computing_seconds() - began, kBurnt) << "computing counts";
}

TEST(MeteredFabric, is_otherwise_the_fabric_that_it_measures_on_another_cluster) {
  BurningFabric inner;
  const MeteredFabric fabric(inner, cluster::uniform(2, 2));
  EXPECT_EQ(fabric.cluster().hosts(), 2);
  EXPECT_EQ(fabric.rank(), 3);
  EXPECT_EQ(fabric.size(), 4);
  EXPECT_EQ(fabric.traffic(), (Traffic{1, 2, 3}));
}

}  // namespace
}  // namespace switchyard::comm
