#include "cluster/hardware.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/errors.hpp"

namespace switchyard::cluster {
namespace {

using testing::ElementsAre;

TEST(EfficiencyCurve, between_two_points_the_share_is_linear_in_the_logarithm_of_the_size) {
  const EfficiencyCurve curve{{{100, 0.4}, {10000, 0.8}}};
  EXPECT_DOUBLE_EQ(curve.at(100), 0.4);
  EXPECT_NEAR(curve.at(1000), 0.6, 1e-12);  // half way: 10^3 between 10^2 and 10^4
  EXPECT_DOUBLE_EQ(curve.at(10000), 0.8);
  EXPECT_NEAR(curve.at(200), 0.4 + 0.4 * 0.150514997831990598, 1e-12);  // log10(2) / 2
}

TEST(EfficiencyCurve, outside_the_points_the_outermost_share_holds) {
  const EfficiencyCurve curve{{{100, 0.4}, {1000, 0.6}, {10000, 0.8}}};
  EXPECT_EQ(curve.at(0), 0.4);
  EXPECT_EQ(curve.at(99), 0.4);
  EXPECT_EQ(curve.at(1e30), 0.8);
  EXPECT_EQ((EfficiencyCurve{{{5, 0.7}}}.at(1)), 0.7);
  EXPECT_EQ((EfficiencyCurve{{{5, 0.7}}}.at(9)), 0.7);
  EXPECT_EQ(EfficiencyCurve{}.at(123), 1) << "without points the peak is reached";
}

TEST(EfficiencyCurve, of_several_segments_the_one_around_the_size_counts) {
  const EfficiencyCurve curve{{{1, 0.2}, {10, 0.4}, {100, 0.4}, {1000, 0.5}}};
  EXPECT_NEAR(curve.at(50), 0.4, 1e-12);
  EXPECT_NEAR(curve.at(316.22776601683796), 0.45, 1e-12);
  EXPECT_NEAR(curve.at(3.1622776601683795), 0.3, 1e-12);
}

TEST(EfficiencyCurve, wrong_points_are_reported_with_their_number) {
  const auto error = [](std::vector<EfficiencyCurve::Point> points) {
    return EfficiencyCurve{std::move(points)}.error();
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({{1, 1}}), "");
  EXPECT_EQ(error({{1, 0.5}, {10, 0.4}, {100, 1}}), "") << "a share may fall, and rise after that";
  EXPECT_EQ(error({{0, 0.5}}), "point 1 has size 0; a size must be above 0");
  EXPECT_EQ(error({{1, 0.5}, {std::numeric_limits<double>::infinity(), 0.5}}),
            "point 2 has size inf; a size must be above 0");
  EXPECT_EQ(error({{1, 1.5}}), "point 1 has share 1.5; a share must be above 0 and at most 1");
  EXPECT_EQ(error({{1, 0.5}, {2, 0}}), "point 2 has share 0; a share must be above 0 and at most 1");
  EXPECT_EQ(error({{1, -0.5}}), "point 1 has share -0.5; a share must be above 0 and at most 1");
  EXPECT_EQ(error({{1, 0.5}, {100, 0.6}, {10, 0.7}}), "point 3 has size 10 after 100; sizes must rise");
  EXPECT_EQ(error({{1, 0.5}, {1, 0.6}}), "point 2 has size 1 after 1; sizes must rise");
  // 0.9 - 0.1 > 0.1 ln(100) = 0.46; 0.9 / (1 + ln(100)) = 0.1606
  EXPECT_EQ(
      error({{1, 0.1}, {100, 0.9}}),
      "from point 1 to 2 the share rises so fast that a bigger size takes less time; raise share 0.1 to 0.17 or more");
  EXPECT_EQ(error({{1, 0.17}, {100, 0.9}}), "");
}

TEST(EfficiencyCurve, without_error_a_bigger_size_takes_no_less_time) {
  const EfficiencyCurve curve{{{1, 0.17}, {100, 0.9}, {200, 0.5}, {400, 0.8}}};
  ASSERT_EQ(curve.error(), "");
  for (double size = 0.5; size < 1000; size *= 1.01)
    EXPECT_LT(size / curve.at(size), size * 1.01 / curve.at(size * 1.01)) << size;
}

TEST(Hardware, ranks_are_placed_in_order_of_hosts_with_their_names) {
  const Hardware hardware{.hosts = 2, .devices_per_host = 3, .host_names = {"alpha", "beta"}};
  EXPECT_EQ(hardware.ranks(), 6);
  EXPECT_THAT(hardware.placement().host, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(hardware.placement().names, ElementsAre("alpha", "beta"));
  EXPECT_THROW((Hardware{.hosts = 2, .host_names = {"alpha"}}.placement()), InternalError);
}

TEST(Hardware, each_class_of_link_has_its_constants) {
  Hardware hardware{.intra_host = {.bandwidth = {300}}};
  EXPECT_EQ(hardware.link(Link::intra_host).bandwidth, BytesPerSecond{300});
  EXPECT_THROW(hardware.link(Link::local), InternalError);
  EXPECT_THROW(hardware.link(Link::inter_host), InternalError);
  hardware.inter_host = LinkClass{.bandwidth = {25}};
  EXPECT_EQ(hardware.link(Link::inter_host).bandwidth, BytesPerSecond{25});
}

TEST(Hardware, a_data_type_without_rates_names_the_section_to_add) {
  Device device{.name = "toy"};
  device.rates[DType::f32] = Rates{.matmul = {5}};
  EXPECT_EQ(device.rates_of(DType::f32).matmul, FlopsPerSecond{5});
  try {
    device.rates_of(DType::f64);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "device toy has no rates for fp64. Add a section [device.fp64] with matmul to the cluster file.");
  }
}

TEST(Device, has_tables_of_what_was_measured_in_a_type) {
  Device device;
  device.operators[DType::f32]["linear"].calls = {{1, 1, 1, 1}};
  EXPECT_NE(device.measured(DType::f32, "linear"), nullptr);
  EXPECT_EQ(device.measured(DType::f64, "linear"), nullptr);
  EXPECT_EQ(device.measured(DType::f32, "rope"), nullptr);
}

TEST(Hardware, transfers_take_a_share_of_the_device_by_their_link) {
  Hardware hardware;
  hardware.overlap_slowdown = 1.5;
  hardware.inter_host = LinkClass{.overlap_slowdown = 1.1};
  EXPECT_DOUBLE_EQ(hardware.device_share(Link::intra_host), 0.5);
  EXPECT_NEAR(hardware.device_share(Link::inter_host), 0.1, 1e-12);
  EXPECT_EQ(hardware.device_share(Link::local), 1) << "copies on the device itself";
}

TEST(EfficiencyCurve, of_measured_points_is_always_sound) {
  EfficiencyCurve curve;
  for (const auto& [size, share] : {std::pair{1.0, 0.2}, {2.0, 0.9}, {4.0, 0.1}, {8.0, 3.0}}) curve.add(size, share);
  EXPECT_EQ(curve.error(), "");
  EXPECT_DOUBLE_EQ(curve.points[0].share, 0.2);
  EXPECT_DOUBLE_EQ(curve.points[1].share, 0.999 * 0.2 * (1 + std::log(2)))
      << "so that twice the size doesn't take less time";
  EXPECT_DOUBLE_EQ(curve.points[2].share, 0.1);
}

}  // namespace
}  // namespace switchyard::cluster
