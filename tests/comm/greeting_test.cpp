#include "comm/greeting.hpp"

#include <gtest/gtest.h>

#include <string>

namespace switchyard::comm {
namespace {

const Digest kKey = key_of("s3cret");

Hello proved(const Challenge& challenge) {
  Hello hello;
  hello.rank = 3, hello.size = 4;
  prove(hello, kKey, challenge);
  return hello;
}

TEST(Greeting, AProofHoldsForItsKeyChallengeAndWordsAlone) {
  const Challenge challenge = make_challenge();
  const Hello hello = proved(challenge);
  EXPECT_TRUE(is_proved(hello, kKey, challenge));
  EXPECT_FALSE(is_proved(hello, key_of("s3cre"), challenge));
  EXPECT_FALSE(is_proved(hello, key_of(""), challenge));
  EXPECT_FALSE(is_proved(hello, kKey, make_challenge()));
  Hello other = hello;
  other.rank = 2;
  EXPECT_FALSE(is_proved(other, kKey, challenge));
  other = hello;
  other.host[0] = 'x';
  EXPECT_FALSE(is_proved(other, kKey, challenge));
}

TEST(Greeting, AVerdictIsProvedByWhoKnowsTheKeyAndHeardTheHello) {
  const Hello hello = proved(make_challenge()), other = proved(make_challenge());
  const Verdict verdict = accepting(kKey, hello);
  EXPECT_EQ(verdict.accepted, 1);
  EXPECT_TRUE(is_proved(verdict, kKey, hello));
  EXPECT_FALSE(is_proved(verdict, kKey, other));
  EXPECT_FALSE(is_proved(accepting(key_of("guess"), hello), kKey, hello));
  Verdict mirrored = verdict;
  mirrored.proof = hello.proof;
  EXPECT_FALSE(is_proved(mirrored, kKey, hello));
}

TEST(Greeting, DataConnectionsHaveAKeyOfTokenAndSession) {
  const Digest session = random_digest();
  EXPECT_EQ(data_key(kKey, session), data_key(kKey, session));
  EXPECT_NE(data_key(kKey, session), data_key(kKey, random_digest()));
  EXPECT_NE(data_key(kKey, session), data_key(key_of(""), session));
}

TEST(Greeting, TextOfAPeerIsCutAndHasNothingThatATerminalActsOn) {
  EXPECT_EQ(text_of(refusing("bad \x1b[31m\n news").reason), "bad ?[31m? news");
  EXPECT_EQ(text_of(refusing(std::string(1000, 'a')).reason), std::string(251, 'a'));
}

}  // namespace
}  // namespace switchyard::comm
