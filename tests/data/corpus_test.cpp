#include "data/corpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../message_of.hpp"
#include "base/errors.hpp"
#include "index_file.hpp"

namespace switchyard::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Corpus, OpensAFolderAPrefixOrEitherFile) {
  const Scratch folder;
  write_corpus(folder.path(), {1, 3, 2});
  for (const char* name : {"", "corpus", "corpus.bin", "corpus.idx"}) {
    const Corpus corpus = Corpus::open(folder.path() / name);
    EXPECT_EQ(corpus.documents(), 3) << name;
    EXPECT_EQ(corpus.length(1), 3);
    EXPECT_EQ(corpus.meta().vocab_size, std::nullopt);
    EXPECT_EQ(corpus.origin(), (folder.path() / "corpus").string());
  }
}

template <class T>
void expect_tokens(int code, const std::vector<i64>& tokens) {
  const Scratch folder;
  IndexFile file = IndexFile::of_lengths({2, 2}, sizeof(T));
  file.code = static_cast<std::uint8_t>(code);
  write_file(folder.path() / "corpus.idx", file.bytes());
  write_file(folder.path() / "corpus.bin", token_bytes<T>(tokens));
  Corpus moved = Corpus::open(folder.path());
  const Corpus corpus = std::move(moved);  // views stay valid
  std::vector<i64> read;
  for (i64 document = 0; document < 2; ++document)
    for (i64 i = 0; i < corpus.tokens(document).size(); ++i) read.push_back(corpus.tokens(document)[i]);
  EXPECT_EQ(read, tokens) << code;
}

TEST(Corpus, EveryTokenTypeReadsItsWholeRange) {
  expect_tokens<std::uint8_t>(1, {0, 1, 127, 255});
  expect_tokens<std::int8_t>(2, {0, 1, 127, -1});
  expect_tokens<std::int16_t>(3, {0, 1, 32767, -1});
  expect_tokens<std::int32_t>(4, {0, 70000, 2147483647, -1});
  expect_tokens<i64>(5, {0, 70000, i64{1} << 40, -1});
  expect_tokens<std::uint16_t>(8, {0, 1, 40000, 65535});
}

TEST(Corpus, ReadCopiesARangeOfADocument) {
  const Scratch folder;
  write_corpus(folder.path(), {1, 8});
  const Corpus corpus = Corpus::open(folder.path());
  std::vector<i64> out(3);
  corpus.read(1, 2, 2, 100, out);
  EXPECT_THAT(out, ElementsAre(12, 14, 16));
  EXPECT_THROW(corpus.read(1, 4, 2, 100, out), InternalError);
  EXPECT_THROW(corpus.read(1, -1, 1, 100, out), InternalError);
  EXPECT_THROW(corpus.read(2, 0, 1, 100, out), InternalError);
}

TEST(Corpus, ATokenOutsideTheVocabularyIsNamed) {
  const Scratch folder;
  write_corpus(folder.path(), {1, 8});
  std::vector<i64> out(8);
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()).read(1, 0, 1, 15, out); }),
              HasSubstr("corpus.bin: token 5 of document 1 is 15, outside the vocabulary of 15. Prepare it with the "
                        "model's tokenizer; for a new model, set model.vocab_size to the tokenizer's size."));
  write_file(folder.path() / "meta.json", R"({"vocab_size": 20})");
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()).read(1, 0, 1, 15, out); }),
              HasSubstr("tokenizer's size (20)."));
}

TEST(Corpus, AVocabularyIsTooSmallIfTheFilesSaySo) {
  const Scratch folder;
  write_corpus(folder.path(), {1, 8});
  Corpus::open(folder.path()).expect_vocabulary(1);
  write_file(folder.path() / "meta.json", R"({"vocab_size": 20, "largest_id": 17})");
  const Corpus corpus = Corpus::open(folder.path());
  corpus.expect_vocabulary(18);
  EXPECT_THAT(
      message_of([&] { corpus.expect_vocabulary(17); }),
      HasSubstr("corpus.bin: its largest token is 17, outside the vocabulary of 17. Prepare it with the model's "
                "tokenizer; for a new model, set model.vocab_size to the tokenizer's size (20)."));
}

TEST(Corpus, TheVocabularySizeComesFromMetaJson) {
  const Scratch folder;
  write_corpus(folder.path(), {1});
  const auto meta = folder.path() / "meta.json";
  write_file(meta, R"({"vocab_size": 8192, "documents": 1})");
  EXPECT_EQ(Corpus::open(folder.path()).meta().vocab_size, 8192);
  for (const char* bad : {"", "{", "[]", "{}", R"({"vocab_size": "x"})", R"({"vocab_size": 0})"}) {
    write_file(meta, bad);
    EXPECT_THAT(message_of([&] { Corpus::open(folder.path()); }),
                HasSubstr("meta.json: no readable vocab_size. Recreate it"))
        << bad;
  }
}

TEST(Corpus, AMaskSaysWhichTokensCount) {
  const Scratch folder;
  write_corpus(folder.path(), {1, 4, 3});
  {
    const Corpus plain = Corpus::open(folder.path());
    EXPECT_FALSE(plain.masked());
    EXPECT_EQ(plain.labels(1, 0, 4), 3);
    EXPECT_EQ(plain.labels(0, 0, 1), 0);
  }
  write_mask(folder.path(), {1, 1, 0, 1, 1, 0, 0, 1});
  const Corpus corpus = Corpus::open(folder.path());
  EXPECT_TRUE(corpus.masked());
  std::vector<std::uint8_t> counts(3);
  corpus.read_mask(1, 1, counts);
  EXPECT_THAT(counts, ElementsAre(0, 1, 1));
  EXPECT_EQ(corpus.labels(1, 0, 4), 2) << "the first token is no label";
  EXPECT_EQ(corpus.labels(1, 0, 2), 0);
  EXPECT_EQ(corpus.labels(1, 2, 2), 1) << "of a piece";
  EXPECT_EQ(corpus.labels(2, 0, 3), 1);
  EXPECT_EQ(corpus.labels(0, 0, 1), 0);
  EXPECT_THROW(corpus.read_mask(1, 2, counts), InternalError);
}

TEST(Corpus, AMaskOfOtherDataIsRefused) {
  const Scratch folder;
  write_corpus(folder.path(), {1, 4});
  write_mask(folder.path(), {1, 1, 0, 1});
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()); }),
              HasSubstr("corpus.mask: 4 bytes, but " + (folder.path() / "corpus.bin").string() +
                        " has 5 tokens: it is of other data. Prepare the data again"));
  write_mask(folder.path(), {1, 1, 0, 2, 1});
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()).labels(1, 0, 4); }),
              HasSubstr("corpus.mask: token 2 of document 1 is 2, neither 0 nor 1."));
  std::filesystem::remove(folder.path() / "corpus.mask");
  write_file(folder.path() / "meta.json", R"({"vocab_size": 100, "bytes": {"corpus.bin": 10, "corpus.mask": 5}})");
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()); }), HasSubstr("corpus.mask: No such file"));
}

TEST(Corpus, MissingAndTruncatedFilesAreNamed) {
  const Scratch folder;
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()); }),
              HasSubstr("corpus.bin: No such file or directory. Give the folder that `switchyard data prepare` wrote, "
                        "in a job as data.path."));
  EXPECT_EQ(message_of([&] { Corpus::open("nowhere"); }),
            "there is no data at nowhere: no such folder, and no nowhere.bin. Give the folder that `switchyard data "
            "prepare` wrote, in a "
            "job as data.path.");
  write_corpus(folder.path(), {5, 5});
  std::filesystem::resize_file(folder.path() / "corpus.bin", 19);
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()); }),
              HasSubstr("corpus.idx: sequence 1 (5 tokens at byte 10) is outside the .bin file of 19 bytes"));
  std::filesystem::resize_file(folder.path() / "corpus.idx", 0);
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()); }), HasSubstr("corpus.idx: not an index"));
  std::filesystem::remove(folder.path() / "corpus.idx");
  EXPECT_THAT(message_of([&] { Corpus::open(folder.path()); }), HasSubstr("corpus.idx: No such file"));
}

}  // namespace
}  // namespace switchyard::data
