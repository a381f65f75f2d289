#include "planner/coding.hpp"

#include <gtest/gtest.h>

#include <span>

#include "../cases.hpp"
#include "planner/plan.hpp"
#include "simulator/coding_time.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

using codecs::Codec;
using config::Compression;

// Memory of 1 TB/s: a codec takes (1 + size) ps for each byte, at both ends.
cluster::Hardware with_links(double inside, double across) { return hardware_of(2, 4, 1e-6, inside, across); }

TEST(Coding, gains_where_the_saved_bytes_take_the_link_longer) {
  const Compression all{.gradients = Codec::int8};
  const double size = 66.0 / 256, seconds = 2 * (1 + size) / 1e12;
  const Codings codings = codings_of(Codec::int8, DType::f32, all, with_links(1e14, 1e10));
  EXPECT_FALSE(codings.inside);
  ASSERT_TRUE(codings.across);
  EXPECT_DOUBLE_EQ(codings.across->size, size);
  EXPECT_DOUBLE_EQ(codings.across->seconds, seconds);
  // Two devices share an adapter, so that it takes a byte of each twice as long.
  const double even = 2 * (1 - size) / seconds;
  EXPECT_TRUE(codings_of(Codec::int8, DType::f32, all, with_links(1e14, 0.99 * even)).across);
  EXPECT_FALSE(codings_of(Codec::int8, DType::f32, all, with_links(1e14, 1.01 * even)).across);
  EXPECT_TRUE(codings_of(Codec::int8, DType::f32, all, with_links(1e10, 1e10)).inside);
}

TEST(Coding, is_none_of_what_is_not_encoded_or_not_shorter_and_inside_hosts_where_the_policy_is_between_them) {
  const cluster::Hardware slow = with_links(1e9, 1e9);
  const Compression all, hosts{.links = config::CompressedLinks::hosts};
  for (const Codec codec : {Codec::none, Codec::lossless}) {
    EXPECT_FALSE(codings_of(codec, DType::f32, all, slow).across) << name_of(codec);
    EXPECT_FALSE(codings_of(codec, DType::f32, all, slow).inside) << name_of(codec);
  }
  EXPECT_FALSE(codings_of(Codec::bf16, DType::bf16, all, slow).across);
  EXPECT_FALSE(codings_of(Codec::int8, DType::f32, hosts, slow).inside);
  EXPECT_TRUE(codings_of(Codec::int8, DType::f32, hosts, slow).across);
}

TEST(Coding, error_feedback_takes_the_sender_longer) {
  const Compression how{.gradients = Codec::top_32};
  const cluster::Hardware slow = with_links(1e9, 1e9);
  EXPECT_GT(codings_of(Codec::top_32, DType::f32, how, slow).across->seconds,
            codings_of(Codec::top_32, DType::f32, {}, slow).across->seconds);
}

TEST(Coding, of_what_is_allowed_that_is_worthwhile_which_gains_somewhere) {
  const Compression allowed{.gradients = Codec::int8,
                            .pipeline = Codec::bf16,
                            .activations = Codec::int8,
                            .keys = Codec::int8,
                            .gathers = Codec::fp8,
                            .switches = Codec::lossless,
                            .smallest = {1234}};
  const Precision bf16 = precision_from("bf16");
  const Compression slow = worthwhile(allowed, bf16, with_links(1e9, 1e9)),
                    between = worthwhile(allowed, bf16, with_links(1e14, 1e9)),
                    nowhere = worthwhile(allowed, bf16, with_links(1e14, 1e14));
  EXPECT_EQ(
      slow,
      (Compression{.gradients = Codec::int8, .activations = Codec::int8, .gathers = Codec::fp8, .smallest = {1234}}));
  EXPECT_EQ(between.links, config::CompressedLinks::hosts);
  EXPECT_EQ(between.gradients, Codec::int8);
  EXPECT_EQ(nowhere, Compression{});
}

// With codecs that no bytes are worth, the model is that without codecs; with slow links it is quicker, never slower.
TEST(Coding, the_model_takes_no_longer_with_codecs_that_strategies_may_have) {
  const config::ModelConfig model = model_of(4, 512, 4000);
  const Precision fp32 = precision_from("fp32");
  const Compression allowed{
      .gradients = Codec::int8, .pipeline = Codec::bf16, .activations = Codec::bf16, .gathers = Codec::bf16};
  const std::vector<std::vector<i64>> steps{{3000, 500, 70, 1200}};
  int quicker = 0;
  const std::vector<double> rates{1e8, 1e15, 1e10};
  for (const double across : std::span(rates).first(cases(3u, 1u))) {
    const cluster::Hardware hardware = with_links(1e15, across);
    const UnitCosts plain(model, fp32, hardware), coded(model, fp32, hardware, {}, allowed);
    const Transfers plain_transfers(plain), coded_transfers(coded);
    const CostModel without(plain, plain_transfers, workload_of(steps, 4096, 512)),
        with(coded, coded_transfers, workload_of(steps, 4096, 512));
    const Range all{0, static_cast<int>(without.bounds().size())};
    for (Shape shape : shapes(model, hardware.ranks(), {}))
      for (const int zero : {1, 3}) {
        if (shape.placement.copies() == 1 && zero > 1) continue;
        shape.placement.zero = zero;
        const auto seconds = [&](const CostModel& of, const Transfers& transfers) {
          return std::pair(of.seconds(shape, 4096, all), transfers.reduce(shape.placement, {shape.placement}));
        };
        const auto [phase, reduce] = seconds(without, plain_transfers);
        const auto [coded_phase, coded_reduce] = seconds(with, coded_transfers);
        EXPECT_LE(coded_phase, phase * (1 + 1e-9)) << to_string(shape);
        EXPECT_LE(coded_reduce, reduce * (1 + 1e-9)) << to_string(shape);
        EXPECT_EQ(coded_transfers.finish({shape.placement, 0}), plain_transfers.finish({shape.placement, 0}));
        if (across == 1e15) {
          EXPECT_EQ(coded_phase, phase) << to_string(shape);
          EXPECT_EQ(coded_reduce, reduce) << to_string(shape);
        }
        quicker += coded_phase < phase && coded_reduce < reduce;
      }
  }
  EXPECT_GT(quicker, 0);
}

// The buckets of a plan as the job has them afterwards.
TEST(Coding, buckets_of_a_plan_have_what_is_worthwhile) {
  const Compression allowed{.gradients = Codec::int8, .keys = Codec::int8};
  const auto compression = [&](double across) {
    const Planner planner({.model = model_of(2, 64, 100),
                           .precision = precision_from("fp32"),
                           .hardware = with_links(1e14, across),
                           .steps = {{500, 100, 100}},
                           .context = 1024,
                           .memory = i64{1} << 40,
                           .limits = {.axes = {layout::StageAxis::outer}},
                           .allowed = allowed});
    const Choice choice = planner.plan(1).best.front();
    const std::vector<config::Bucket> buckets = planner.buckets(choice);
    EXPECT_TRUE(planner.choice(buckets, std::vector<int>{0}).has_value() || buckets.size() > 1);
    return buckets.front().strategy.compression;
  };
  EXPECT_EQ(compression(1e9), (Compression{.gradients = Codec::int8, .links = config::CompressedLinks::hosts}));
  EXPECT_EQ(compression(1e14), Compression{});
}

}  // namespace
}  // namespace switchyard::planner
