#include "base/sha256.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace switchyard {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte b : digest) text += fmt::format("{:02x}", std::to_integer<int>(b));
  return text;
}

std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// Values of FIPS 180-4's examples.
TEST(Sha256, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1000000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Cases 1, 2 and 6 of RFC 4231.
TEST(Sha256, KeyedDigestsAreThoseOfRfc4231) {
  EXPECT_EQ(hex(hmac_sha256(bytes(std::string(20, '\x0b')), bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256(bytes("Jefe"), bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(bytes(std::string(131, '\xaa')),
                            bytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, DigestsAreEqualOnlyIfEveryByteIs) {
  const Digest one = sha256("abc");
  EXPECT_TRUE(equal_in_constant_time(one, sha256("abc")));
  for (size_t i = 0; i < one.size(); ++i) {
    Digest other = one;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(equal_in_constant_time(one, other)) << i;
  }
  EXPECT_NE(random_digest(), random_digest());
}

}  // namespace
}  // namespace switchyard
