#include "batch/key_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "base/errors.hpp"
#include "batch/ring_map.hpp"

namespace switchyard::batch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What lies in each row of a shard: document and position; (-1, 0): padding.
using Token = std::pair<i64, int>;
std::vector<Token> tokens_of(const std::vector<Piece>& shard) {
  std::vector<Token> rows;
  for (const Piece& piece : shard)
    for (int i = 0; i < piece.count; ++i) rows.emplace_back(piece.doc, piece.doc < 0 ? 0 : piece.first + i);
  return rows;
}

// Micro-batches of a few documents on up to five ring ranks, and the host of each rank.
struct Drawn {
  std::vector<PlacedDocument> documents;
  MicroBatch micro_batch;
  std::vector<int> hosts;
};

Drawn drawn(std::mt19937_64& random) {
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  Drawn of;
  const int ranks = 1 + draw(7), per_host = 1 + draw(4);
  for (int doc = 0, count = 1 + draw(6); doc < count; ++doc) {
    const int degree = 1 + draw(ranks);
    of.documents.push_back(
        {.doc = 10 + doc, .tokens = 1 + draw(30), .span = {draw(ranks - degree + 1), degree, draw(2) == 1}});
  }
  of.micro_batch = lay_out(of.documents, ranks, 1 + draw(3), 1 + draw(3));
  for (int rank = 0; rank < ranks; ++rank) of.hosts.push_back(rank / per_host);
  return of;
}

// The keys in which each rank's blocks count, its own rows or those that come together, after all rounds. No row may
// come twice, or be passed on before it is there.
constexpr Token kNothing{-2, 0};
std::vector<std::vector<Token>> brought(const KeyExchange& exchange, const MicroBatch& micro_batch) {
  std::vector<std::vector<Token>> shards, keys;
  for (const auto& shard : micro_batch.shard) shards.push_back(tokens_of(shard));
  const auto put = [&](std::size_t rank, const std::vector<Token>& from, i64 row, i64 at, int count) {
    for (int i = 0; i < count; ++i) {
      Token& to = keys[rank].at(static_cast<std::size_t>(at + i));
      EXPECT_EQ(to, kNothing) << "a row that comes twice";
      to = from.at(static_cast<std::size_t>(row + i));
      EXPECT_NE(to, kNothing) << "a row that is passed on before it came";
    }
  };
  for (std::size_t rank = 0; rank < shards.size(); ++rank) {
    keys.emplace_back(static_cast<std::size_t>(exchange.seen[rank].rows), kNothing);
    for (const KeyRows& rows : exchange.seen[rank].own) put(rank, shards[rank], rows.row, rows.at, rows.count);
  }
  for (const std::vector<KeyMessage>& round : exchange.rounds) {
    const std::vector<std::vector<Token>> before = keys;
    for (const KeyMessage& message : round) {
      const auto from = static_cast<std::size_t>(message.from);
      EXPECT_NE(message.from, message.to);
      put(static_cast<std::size_t>(message.to), message.passed_on ? before[from] : shards[from], message.row,
          message.at, message.count);
    }
  }
  for (std::size_t rank = 0; rank < shards.size(); ++rank)
    if (exchange.seen[rank].rows == 0) keys[rank] = shards[rank];
  return keys;
}

TEST(KeyExchange, lets_each_query_see_the_keys_up_to_its_own_in_any_micro_batch) {
  std::mt19937_64 random(5);
  int exchanges = 0, passed_on = 0;
  for (int test = 0; test < 300; ++test) {
    const auto [documents, micro_batch, hosts] = drawn(random);
    const KeyExchange exchange = key_exchange(micro_batch, hosts);
    ASSERT_EQ(exchange.seen.size(), hosts.size());
    const std::vector<std::vector<Token>> all_keys = brought(exchange, micro_batch);
    std::map<i64, i64> queries;  // of a document
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      const SeenKeys& seen = exchange.seen[rank];
      EXPECT_EQ(seen.rows, keys_brought_together(micro_batch.shard[rank]));
      exchanges += seen.rows > 0;
      const std::vector<Token> own = tokens_of(micro_batch.shard[rank]);
      const std::vector<Token>& keys = all_keys[rank];
      for (const Token& key : keys) EXPECT_NE(key, kNothing) << "a row that nobody sends";
      for (const QueryBlock& block : seen.blocks) {
        ASSERT_LE(block.qn, block.kn);
        for (int i = 0; i < block.qn; ++i) {
          const auto [doc, position] = own.at(static_cast<std::size_t>(block.q + i));
          ++queries[doc];
          EXPECT_EQ(position, block.kn - block.qn + i);
          for (int key = 0; key <= position; ++key)
            EXPECT_EQ(keys.at(static_cast<std::size_t>(block.k + key)), Token(doc, key));
        }
      }
    }
    for (const PlacedDocument& document : documents) EXPECT_EQ(queries[document.doc], document.tokens);
    passed_on += exchange.rounds.size() > 1;
  }
  EXPECT_GT(exchanges, 100);
  EXPECT_GT(passed_on, 30);
}

// What each ring rank receives of all documents, from its own host and from others.
std::vector<ReceivedKeys> received(const KeyExchange& exchange, const std::vector<int>& hosts) {
  std::vector<ReceivedKeys> all(hosts.size());
  for (const std::vector<KeyMessage>& round : exchange.rounds)
    for (const KeyMessage& message : round) {
      const auto from = static_cast<std::size_t>(message.from), to = static_cast<std::size_t>(message.to);
      EXPECT_TRUE(!message.passed_on || hosts[from] == hosts[to]);
      (hosts[from] == hosts[to] ? all[to].inside : all[to].across) += message.count;
    }
  return all;
}

TEST(KeyExchange, brings_what_the_ring_map_counts_to_each_host_once) {
  std::mt19937_64 random(6);
  i64 across = 0;
  for (int test = 0; test < 300; ++test) {
    const auto [documents, micro_batch, hosts] = drawn(random);
    const auto per_host = static_cast<int>(std::ranges::count(hosts, 0));
    std::vector<ReceivedKeys> counted(hosts.size());
    for (const PlacedDocument& document : documents) {
      const std::vector<ReceivedKeys> of_span = received_keys(document, per_host);
      for (std::size_t i = 0; i < of_span.size(); ++i) {
        ReceivedKeys& to = counted[static_cast<std::size_t>(document.span.first) + i];
        to.inside += of_span[i].inside;
        to.across += of_span[i].across;
        across += of_span[i].across;
      }
    }
    EXPECT_EQ(received(key_exchange(micro_batch, hosts), hosts), counted);
  }
  EXPECT_GT(across, 1000);
}

// Each rank of a span of two hosts of four gets, of n keys on the other host, (hosts - 1) / degree * n at most.
TEST(KeyExchange, uses_all_ports_of_a_host_for_what_crosses) {
  const std::vector<int> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  const MicroBatch micro_batch = lay_out(std::vector<PlacedDocument>{{0, 1600, {0, 8}}}, 8, 1);
  const std::vector<ReceivedKeys> keys = received(key_exchange(micro_batch, hosts), hosts);
  for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(keys[rank].across, rank < 4 ? 200 : 100);
}

// Each rank's gradients of the keys that it sees are one number for each, and go back.
TEST(KeyExchange, backwards_adds_what_each_rank_makes_of_a_key_once) {
  std::mt19937_64 random(7);
  for (int test = 0; test < 100; ++test) {
    const auto [documents, micro_batch, hosts] = drawn(random);
    const KeyExchange exchange = key_exchange(micro_batch, hosts);
    std::vector<std::vector<std::set<std::size_t>>> made, sums, expected;  // whose gradients each row has
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      made.emplace_back(static_cast<std::size_t>(exchange.seen[rank].rows), std::set{rank});
      sums.emplace_back(tokens_of(micro_batch.shard[rank]).size());
      for (const KeyRows& rows : exchange.seen[rank].own)
        for (int i = 0; i < rows.count; ++i) sums[rank][static_cast<std::size_t>(rows.row + i)].insert(rank);
    }
    for (auto round = exchange.rounds.rbegin(); round != exchange.rounds.rend(); ++round)
      for (const KeyMessage& message : *round)
        for (int i = 0; i < message.count; ++i) {
          const auto from = static_cast<std::size_t>(message.from);
          auto& to = (message.passed_on ? made : sums)[from][static_cast<std::size_t>(message.row + i)];
          for (const std::size_t rank :
               made[static_cast<std::size_t>(message.to)][static_cast<std::size_t>(message.at + i)])
            EXPECT_TRUE(to.insert(rank).second) << "twice";
        }
    for (std::size_t holder = 0; holder < hosts.size(); ++holder) {
      const std::vector<Token> own = tokens_of(micro_batch.shard[holder]);
      for (std::size_t row = 0; row < own.size(); ++row) {
        std::set<std::size_t> seeing;
        for (std::size_t rank = 0; rank < hosts.size(); ++rank)
          if (exchange.seen[rank].rows > 0)
            for (const Piece& piece : micro_batch.shard[rank])
              if (piece.doc >= 0 && piece.doc == own[row].first && end_of(piece) > own[row].second) seeing.insert(rank);
        EXPECT_EQ(sums[holder][row], seeing);
      }
    }
  }
}

TEST(KeyExchange, of_whole_documents_is_nothing) {
  const MicroBatch micro_batch = lay_out(std::vector<PlacedDocument>{{0, 5, {}}, {1, 4, {1, 1}}}, 2, 4);
  const KeyExchange exchange = key_exchange(micro_batch);
  EXPECT_THAT(exchange.rounds, IsEmpty());
  for (const SeenKeys& seen : exchange.seen) {
    EXPECT_EQ(seen.rows, 0);
    EXPECT_THAT(seen.own, IsEmpty());
  }
  EXPECT_THAT(exchange.seen[0].blocks, ElementsAre(QueryBlock{.q = 0, .qn = 5, .k = 0, .kn = 5}));
}

// Ring ranks from which a rank gets keys, and the first position and number of them.
std::map<int, std::vector<std::pair<int, int>>> keys_from_others(const PlacedDocument& document, int rank) {
  std::map<int, std::vector<std::pair<int, int>>> others;
  for (const auto& round : key_exchange(lay_out({&document, 1}, document.span.degree, 1)).rounds)
    for (const KeyMessage& message : round)
      if (message.to == rank) others[message.from].emplace_back(static_cast<int>(message.at), message.count);
  return others;
}

TEST(KeyExchange, of_a_document_brings_all_of_a_later_place_and_the_front_chunk_of_an_earlier_one) {
  const PlacedDocument document{.doc = 0, .tokens = 80, .span = {0, 4}};
  EXPECT_THAT(keys_from_others(document, 1).at(2), ElementsAre(std::pair(20, 10), std::pair(50, 10)));
  EXPECT_THAT(keys_from_others(document, 2).at(1), ElementsAre(std::pair(10, 10)));
  for (int degree = 2; degree <= 8; ++degree) {
    const i64 tokens = 10 * degree;
    int messages = 0;
    i64 moved = 0;
    for (int rank = 0; rank < degree; ++rank)
      for (const auto& [holder, runs] : keys_from_others({.doc = 0, .tokens = tokens, .span = {0, degree}}, rank)) {
        ++messages;
        for (const auto& [first, count] : runs) moved += count;
      }
    EXPECT_EQ(messages, degree * (degree - 1));
    EXPECT_EQ(4 * moved, 3 * (degree - 1) * tokens);
  }
}

TEST(KeyExchange, of_a_document_with_fewer_tokens_than_chunks_is_less) {
  // Of six chunks only the third and the last have a token, on places 2 and 0.
  const PlacedDocument document{.doc = 0, .tokens = 2, .span = {0, 3}};
  EXPECT_THAT(keys_from_others(document, 0).at(2), ElementsAre(std::pair(0, 1)));
  EXPECT_THAT(keys_from_others(document, 2), IsEmpty());
  EXPECT_THAT(keys_from_others(document, 1), IsEmpty());
}

std::string error_of(const MicroBatch& micro_batch) {
  try {
    key_exchange(micro_batch);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(KeyExchange, of_parts_that_are_nowhere_is_a_bug) {
  EXPECT_THAT(error_of({{2, 2}, {{{7, 2, 2, 1}}, {{-1, 0, 2, 1}}}}),
              HasSubstr("document 7: ring rank 0 needs 4 keys, and 2 are there"));
  EXPECT_THAT(error_of({{2}, {{{7, 0, 2, 2}}}}), HasSubstr("a piece of document 7 with stride 2"));
}

TEST(KeyExchange, needs_the_host_of_each_ring_rank) {
  EXPECT_THROW(key_exchange({{2, 2}, {{{7, 0, 2, 1}}, {{-1, 0, 2, 1}}}}, std::vector<int>{0}), InternalError);
}

}  // namespace
}  // namespace switchyard::batch
