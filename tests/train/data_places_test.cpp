#include "train/data_places.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "../data/index_file.hpp"
#include "../files/scratch.hpp"
#include "base/errors.hpp"

namespace switchyard::train {
namespace {

using Lengths = std::vector<i64>;

class DataPlaces : public testing::Test {
 protected:
  /// Sources by name and lengths of documents.
  std::vector<data::Source> sources(const std::vector<std::pair<std::string, Lengths>>& named) const {
    std::vector<data::Source> result;
    for (const auto& [name, lengths] : named) {
      const std::filesystem::path folder = folder_of(name, lengths);
      std::filesystem::create_directories(folder);
      data::write_corpus(folder, lengths);
      result.push_back({name, 1, data::Corpus::open(folder.string())});
    }
    return result;
  }
  std::filesystem::path folder_of(const std::string& name, const Lengths& lengths) const {
    return scratch_ / fmt::format("{}-{}", name, fmt::join(lengths, "-"));
  }

  const Scratch scratch_;
  const data::Cursor cursor_{{1, 2, 3, 1000.0 / 3}, {0, 1, 0, 0.1}};
  const Lengths code_{5, 6, 7}, web_{8, 9};
  const std::vector<data::Source> both_ = sources({{"code", code_}, {"web", web_}});
  const std::vector<files::DataPlace> places_ = places_of(both_, cursor_);
};

TEST_F(DataPlaces, AreTakenUpInTheSameSources) {
  const std::vector<files::DataPlace> expected{{"code", 1, 2, 3, 1000.0 / 3, 3, 18}, {"web", 0, 1, 0, 0.1, 2, 17}};
  EXPECT_EQ(places_, expected);
  for (const bool new_data : {false, true}) {
    const ResumedData resumed = resumed_data("out", places_, both_, new_data);
    EXPECT_EQ(resumed.cursor, cursor_);
    EXPECT_EQ(resumed.changed, "");
  }
  std::vector<files::DataPlace> without_sizes = places_;
  for (files::DataPlace& place : without_sizes) place.documents = place.tokens = 0;
  EXPECT_EQ(resumed_data("out", without_sizes, both_, false).cursor, cursor_);
  EXPECT_EQ(places_of(both_, {})[1], (files::DataPlace{"web", 0, 0, 0, 0, 2, 17}));
}

TEST_F(DataPlaces, OfOtherSourcesAreRefused) {
  const auto refusal = [&](const std::vector<std::pair<std::string, Lengths>>& named) {
    return message_of<UserError>([&] { resumed_data("out", places_, sources(named), false); });
  };
  EXPECT_EQ(refusal({{"web", web_}, {"code", code_}}),
            "--resume out: the checkpoint draws from the sources code, web, the job from the sources web, code. Name "
            "the same sources in the same order (their weights may change); --new-data goes on with other data.");
  EXPECT_NE(refusal({{"", code_}}).find("the job from data.path. "), std::string::npos);
  EXPECT_EQ(refusal({{"code", code_}, {"web", {8, 10}}}),
            "--resume out: the checkpoint's place is in a corpus of 2 documents with 17 tokens, but " +
                folder_of("web", {8, 10}).string() +
                " has 2 with 18: others would be drawn than were left. Resume with that corpus; --new-data goes on "
                "with other data.");
}

TEST_F(DataPlaces, OfNewSourcesAreTheirBeginning) {
  const auto expect = [&](const std::vector<std::pair<std::string, Lengths>>& named, const data::Cursor& cursor,
                          const char* changed) {
    const ResumedData resumed = resumed_data("out", places_, sources(named), true);
    EXPECT_EQ(resumed.cursor, cursor) << changed;
    EXPECT_EQ(resumed.changed, changed);
  };
  const data::Place code{1, 2, 3, 0}, web{0, 1, 0, 0}, begin{};
  expect({{"code", code_}, {"web", web_}, {"more", {4}}}, {code, web, begin},
         "more from the beginning; code, web from the place where the checkpoint stopped");
  expect({{"code", code_}, {"web", {8, 9, 1}}}, {code, begin},
         "web from the beginning; code from the place where the checkpoint stopped");
  expect({{"code", code_}}, {code}, "code from the place where the checkpoint stopped");
  // Another number is another order of the same documents.
  expect({{"web", web_}, {"code", code_}}, {begin, begin}, "web, code from the beginning");
  expect({{"", code_}}, {begin}, "data.path from the beginning");
}

}  // namespace
}  // namespace switchyard::train
