#include "base/file_sample.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "../scratch.hpp"
#include "base/errors.hpp"

namespace switchyard {
namespace {

class FileSample : public testing::Test {
 protected:
  std::uint64_t sample_of(const std::string& content) {
    std::ofstream(scratch_ / "file", std::ios::binary) << content;
    Fingerprint made;
    add_sample(made, scratch_ / "file");
    return made.value();
  }
  Scratch scratch_;
};

TEST_F(FileSample, has_the_size_both_ends_and_all_of_a_short_file) {
  for (const size_t size : {1u, 65536u, 65537u, 10'000'000u}) {
    std::string content(size, '\0');
    const std::uint64_t zeros = sample_of(content);
    EXPECT_NE(sample_of(content + '\0'), zeros) << size;
    for (const size_t at : {size_t{0}, size - 1, std::min<size_t>(size - 1, 40'000)}) {
      if (at == 40'000 && size > 65536) continue;
      content[at] = 1;
      EXPECT_NE(sample_of(content), zeros) << size << " bytes, changed at " << at;
      content[at] = 0;
    }
  }
}

TEST_F(FileSample, of_a_long_file_has_pieces_that_are_evenly_spread) {
  constexpr size_t kSize = 1'000'000, kStretch = kSize / 50;
  const std::string content(kSize, '\0');
  const std::uint64_t zeros = sample_of(content);
  for (size_t first = 0; first < kSize; first += kStretch)
    EXPECT_NE(sample_of(std::string(content).replace(first, kStretch, kStretch, 'x')), zeros) << "from " << first;
}

TEST_F(FileSample, of_a_file_that_is_not_there_is_refused) {
  Fingerprint made;
  EXPECT_THROW(add_sample(made, scratch_ / "none"), UserError);
  EXPECT_NO_THROW(sample_of("")) << "an empty one";
}

}  // namespace
}  // namespace switchyard
