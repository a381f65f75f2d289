#include "train/profile_codecs.hpp"

#include <gtest/gtest.h>

#include "../comm/rank_threads.hpp"

namespace switchyard::train {
namespace {

TEST(ProfileCodecs, has_a_rate_of_each_codec_of_a_job_and_all_ranks_agree) {
  auto fabrics = comm::thread_fabrics(2, cluster::uniform(1, 2), {});
  std::vector<std::map<std::string, cluster::CodecRates>> rates(2);
  const auto ends = comm::run_ranks(fabrics, [&](comm::Fabric& fabric) {
    MeasurementBarrier barrier(fabric);
    rates[static_cast<size_t>(fabric.rank())] = profile_codecs(barrier, thread_seconds);
  });
  ASSERT_EQ(ends, std::vector<std::string>(2));
  EXPECT_EQ(rates[0], rates[1]);
  for (const char* codec :
       {"bf16", "fp8", "int8", "int4", "zfp16", "zfp8", "top-1-of-32", "top-1-of-128", "lossless"}) {
    ASSERT_TRUE(rates[0].contains(codec)) << codec;
    EXPECT_GT(rates[0].at(codec).encode.count, 0) << codec;
    EXPECT_GT(rates[0].at(codec).decode.count, 0) << codec;
  }
  EXPECT_FALSE(rates[0].contains("none"));
}

}  // namespace
}  // namespace switchyard::train
