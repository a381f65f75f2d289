#include "data/index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/errors.hpp"
#include "index_file.hpp"

namespace switchyard::data {
namespace {

using testing::HasSubstr;

constexpr i64 kData = 12;  // bytes of .bin: 6 tokens of two bytes

IndexFile good() { return IndexFile::of_lengths({1, 3, 2}); }

std::string error_of(const std::string& bytes, i64 data_bytes = kData) {
  try {
    parse_index(std::as_bytes(std::span(bytes)), "a/corpus.idx", data_bytes);
  } catch (const UserError& error) {
    return error.what();
  }
  return "good";
}

TEST(Index, LengthsAndOffsetsAreRead) {
  const std::string bytes = good().bytes();
  const Index index = parse_index(std::as_bytes(std::span(bytes)), "a", kData);
  EXPECT_EQ(index.type(), TokenType::u16);
  ASSERT_EQ(index.documents(), 3);
  EXPECT_EQ(index.length(0), 1);
  EXPECT_EQ(index.length(1), 3);
  EXPECT_EQ(index.offset(1), 2);
  EXPECT_EQ(index.offset(2), 8);
  EXPECT_THROW(index.length(3), InternalError);
  EXPECT_THROW(index.offset(-1), InternalError);
}

TEST(Index, ADocumentMayHaveSeveralSequences) {
  IndexFile file = good();
  file.marks = {0, 1, 3};
  const std::string bytes = file.bytes();
  const Index index = parse_index(std::as_bytes(std::span(bytes)), "a", kData);
  EXPECT_EQ(index.documents(), 2);
  EXPECT_EQ(index.length(1), 5);
  EXPECT_EQ(index.offset(1), 2);
}

TEST(Index, NoDocumentsAtAllIsAnIndexToo) {
  const std::string bytes = IndexFile::of_lengths({}).bytes();
  EXPECT_EQ(parse_index(std::as_bytes(std::span(bytes)), "a", 0).documents(), 0);
}

TEST(Index, EveryTokenTypeHasItsSize) {
  for (const auto& [code, size] : std::vector<std::pair<int, i64>>{{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}}) {
    IndexFile file = IndexFile::of_lengths({1, 3, 2}, size);
    file.code = static_cast<std::uint8_t>(code);
    EXPECT_EQ(error_of(file.bytes(), 6 * size), "good") << code;
    EXPECT_THAT(error_of(file.bytes(), 6 * size - 1), HasSubstr("outside the .bin file")) << code;
    EXPECT_EQ(size_of(static_cast<TokenType>(code)), size);
  }
  EXPECT_THROW(size_of(static_cast<TokenType>(9)), InternalError);
}

TEST(Index, AnotherFileIsRefused) {
  IndexFile file = good();
  file.magic[0] = 'N';
  EXPECT_THAT(
      error_of(file.bytes()),
      HasSubstr("a/corpus.idx: not an index of a token file (it must start with MMIDIDX). Give the folder that"));
  EXPECT_THAT(error_of(""), HasSubstr("not an index"));
}

TEST(Index, AnotherVersionIsRefused) {
  IndexFile file = good();
  file.version = 2;
  EXPECT_THAT(
      error_of(file.bytes()),
      HasSubstr("version 2 of the index is unknown, only 1 is. Recreate it with `switchyard data prepare --force`."));
}

TEST(Index, OtherTokenTypesAreRefused) {
  IndexFile file = good();
  file.code = 7;
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("type code 7 is floating point"));
  file.code = 9;
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("type code 9 is unknown"));
}

TEST(Index, EveryCutAndEveryByteTooManyIsNoticed) {
  const std::string bytes = good().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_NE(error_of(bytes.substr(0, size)), "good") << size;
  EXPECT_THAT(error_of(bytes.substr(0, 20)), HasSubstr("cut short: 20 bytes, the header has 34"));
  EXPECT_THAT(error_of(bytes.substr(0, bytes.size() - 1)),
              HasSubstr("cut short: 101 bytes for 3 sequences and 4 document marks"));
  EXPECT_THAT(error_of(bytes + "xy"), HasSubstr("2 bytes follow the end of the index"));
}

TEST(Index, CountsThatOverflowAreRefused) {
  for (const std::size_t field : {18u, 26u})
    for (const std::uint64_t count : {std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max(),
                                      (std::uint64_t{1} << 62) / 3 * 4, std::uint64_t{100}}) {
      std::string bytes = good().bytes();
      std::memcpy(bytes.data() + field, &count, sizeof count);
      EXPECT_THAT(error_of(bytes), HasSubstr("cut short")) << field << " " << count;
    }
  IndexFile file;  // not even the end of the list of documents
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("the list of documents is empty"));
}

TEST(Index, SequencesOutsideTheDataAreRefused) {
  IndexFile file = good();
  EXPECT_THAT(error_of(file.bytes(), kData - 1),
              HasSubstr("sequence 2 (2 tokens at byte 8) is outside the .bin file of 11 bytes"));
  file.pointers[2] = -2;
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("sequence 2 (2 tokens at byte -2) is outside"));
  file.pointers[2] = std::numeric_limits<i64>::max() - 1;
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("is outside"));
  file = good();
  file.sizes[2] = std::numeric_limits<std::int32_t>::max();
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("sequence 2 (2147483647 tokens at byte 8) is outside"));
  file.sizes[2] = -1;
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("sequence 2 has -1 tokens"));
}

TEST(Index, TokensOfNoDocumentAreRefused) {
  EXPECT_EQ(error_of(good().bytes(), kData + 2),
            "a/corpus.idx: its documents have 6 tokens of 2 bytes, but the .bin file has 14 bytes: it is of another "
            "index. Recreate it with `switchyard data prepare --force`.");
  EXPECT_THAT(error_of(IndexFile::of_lengths({}).bytes(), 2), HasSubstr("it is of another index"));
}

TEST(Index, MisalignedSequencesAreRefused) {
  IndexFile file = good();
  file.pointers[1] = 3;
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("sequence 1 starts at byte 3, not at a token of 2 bytes"));
}

TEST(Index, TornAndEmptyDocumentsAreRefused) {
  IndexFile file = good();
  file.marks = {0, 1, 3};
  file.pointers[2] = 4;
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("document 1 is torn: sequence 2 does not follow the one before"));
  file = good();
  file.sizes[1] = 0;
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("document 1 is empty"));
}

TEST(Index, DocumentMarksMustRiseFromFirstToLastSequence) {
  IndexFile file = good();
  file.marks = {1, 1, 2, 3};
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("the documents are sequences 1 to 3 of 3: some belong to none"));
  file.marks = {0, 1, 2, 2};
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("the documents are sequences 0 to 2 of 3"));
  file.marks = {0, 2, 1, 3};
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("document 1 is sequences 2 to 1 of 3"));
  file.marks = {0, 4, 2, 3};
  EXPECT_THAT(error_of(file.bytes()), HasSubstr("document 0 is sequences 0 to 4 of 3"));
}

}  // namespace
}  // namespace switchyard::data
