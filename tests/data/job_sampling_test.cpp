#include "data/job_sampling.hpp"

#include <gmock/gmock.h>

#include "../scratch.hpp"

namespace switchyard::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

config::Job job(const std::string& lengths) {
  config::Job made;
  made.seed = 9;
  made.batch = {.sequences = 3, .tokens = 0, .context = 64, .lengths = lengths};
  made.data.long_documents = config::LongDocuments::clip;
  return made;
}

TEST(JobSampling, takes_the_jobs_batch) {
  const Sampler::Settings settings = sampler_settings(job(""));
  EXPECT_EQ(settings.seed, 9u);
  EXPECT_EQ(settings.size.sequences, 3);
  EXPECT_EQ(settings.context, 64);
  EXPECT_EQ(settings.long_documents, LongDocuments::clip);
}

TEST(JobSampling, full_lengths_are_the_context) {
  EXPECT_THAT(given_lengths(job("full"), 2), ElementsAre(ElementsAre(64, 64, 64), ElementsAre(64, 64, 64)));
}

TEST(JobSampling, each_step_draws_from_the_histogram_again) {
  const Scratch folder;
  const std::string path = folder.file("lengths.json", R"({"bins": [[8, 60, 1]]})");
  const auto lengths = given_lengths(job(path), 2);
  EXPECT_EQ(given_lengths(job(path), 1, 1).front(), lengths[1]);
  EXPECT_THAT(lengths, Each(SizeIs(3)));
  EXPECT_NE(lengths[0], lengths[1]);
}

}  // namespace
}  // namespace switchyard::data
