#include "comm/greeting.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace switchyard::comm {
namespace {

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// The words differ for the two sides, so that one side's proof can't be used as the other's.
Digest proof_of(const Digest& key, const std::string& word, const Digest& nonce, std::span<const std::byte> said) {
  std::vector<std::byte> message;
  append(message, std::as_bytes(std::span(word)));
  append(message, nonce);
  append(message, said);
  return hmac_sha256(key, message);
}

Digest proof_of(const Hello& hello, const Digest& key, const Challenge& challenge) {
  return proof_of(key, "hello", challenge.nonce, std::as_bytes(std::span(&hello, 1)).first(offsetof(Hello, proof)));
}

Digest acceptance_of(const Digest& key, const Hello& hello) {
  return proof_of(key, "welcome", hello.nonce, hello.proof);
}

}  // namespace

static_assert(offsetof(Hello, proof) + sizeof(Digest) == sizeof(Hello) && offsetof(Hello, host) == 28,
              "no bytes between the fields");

Challenge make_challenge() { return {.nonce = random_digest()}; }

void prove(Hello& hello, const Digest& key, const Challenge& challenge) {
  hello.nonce = random_digest();
  hello.proof = proof_of(hello, key, challenge);
}

bool is_proved(const Hello& hello, const Digest& key, const Challenge& challenge) {
  return equal_in_constant_time(hello.proof, proof_of(hello, key, challenge));
}

Verdict accepting(const Digest& key, const Hello& hello) {
  return {.accepted = 1, .reason = {}, .proof = acceptance_of(key, hello)};
}

Verdict refusing(const std::string& reason) {
  Verdict verdict;
  reason.copy(verdict.reason.data(), verdict.reason.size() - 1);
  return verdict;
}

bool is_proved(const Verdict& verdict, const Digest& key, const Hello& hello) {
  return equal_in_constant_time(verdict.proof, acceptance_of(key, hello));
}

Digest key_of(const std::string& token) { return sha256("switchyard " + token); }

Digest data_key(const Digest& key, const Digest& session) { return hmac_sha256(key, session); }

}  // namespace switchyard::comm
