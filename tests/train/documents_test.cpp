#include "train/documents.hpp"

#include <gtest/gtest.h>

#include "../files/scratch.hpp"
#include "small_run.hpp"

namespace switchyard::train {
namespace {

TEST(Documents, are_read_only_where_they_are_needed) {
  const Scratch scratch;
  write_small_corpus(scratch / "data");
  const config::Job job = small_job((scratch / "data").string(), "");
  const std::vector<data::Source> sources = data::open_sources(job);
  const std::vector<data::Sequence> sequences{{.document = 0, .first = 2, .count = 5}, {.document = 3, .count = 25}};
  const runtime::Documents documents = read_documents(sources, sequences, {true, false}, 131);
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_TRUE(documents[1].empty());
  ASSERT_EQ(documents[0].size(), 5u);
  const data::Tokens tokens = sources[0].corpus.tokens(0);
  for (i64 i = 0; i < 5; ++i) EXPECT_EQ(documents[0][static_cast<size_t>(i)], tokens[2 + i]);
  const runtime::Labels labels = read_labels(sources, sequences, {true, false});
  EXPECT_EQ(labels.sources, 1);
  EXPECT_EQ(labels.source, (std::vector<int>{0, 0}));
  EXPECT_TRUE(labels.counts.empty()) << "all tokens count";
}

}  // namespace
}  // namespace switchyard::train
