#include "train/model_tokenizer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "../data/index_file.hpp"
#include "../files/scratch.hpp"

namespace switchyard::train {
namespace {

TEST(TokenizerOfTheModel, must_be_that_of_the_data) {
  const Scratch scratch;
  const auto tokenizer = [&](const char* folder, const char* token) {
    std::filesystem::create_directories(scratch / folder);
    files::put(scratch / folder / "tokenizer.json", fmt::format(R"({{"model": {{"vocab": {{"{}": 5}}}}}})", token));
  };
  for (const char* folder : {"data", "other"}) {
    std::filesystem::create_directories(scratch / folder);
    data::write_corpus(scratch / folder, {3, 4});
  }
  tokenizer("data", "the");
  tokenizer("model", "the");
  config::Job job;
  job.model.path = (scratch / "model").string();
  job.data.path = (scratch / "data").string();
  EXPECT_NO_THROW(require_tokenizer_of_model(job.model.path, data::open_sources(job)));
  tokenizer("model", "a");
  EXPECT_EQ(message_of<UserError>([&] { require_tokenizer_of_model(job.model.path, data::open_sources(job)); }),
            fmt::format("{0} was prepared with another tokenizer than that of the model in {1}: id 5 is \"the\" there "
                        "and \"a\" in the model. Prepare it again with --tokenizer {1}.",
                        job.data.path, job.model.path));
  job.data.path = (scratch / "other").string();
  EXPECT_NO_THROW(require_tokenizer_of_model(job.model.path, data::open_sources(job)))
      << "nothing is known of its tokenizer";
  job.data.path = (scratch / "data").string();
  job.model.path.clear();
  EXPECT_NO_THROW(require_tokenizer_of_model(job.model.path, data::open_sources(job)));
}

}  // namespace
}  // namespace switchyard::train
