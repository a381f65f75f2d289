#include "batch/key_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// The keys that a rank's blocks count in: its own rows, or those that come together.
std::vector<Token> keys_of(const SeenKeys& seen, const MicroBatch& micro_batch, std::size_t rank) {
  if (seen.rows == 0) return tokens_of(micro_batch.shard[rank]);
  std::vector<Token> keys(static_cast<std::size_t>(seen.rows), Token{-2, 0});
  for (const KeyRows& rows : seen.from) {
    const std::vector<Token> own = tokens_of(micro_batch.shard[static_cast<std::size_t>(rows.holder)]);
    for (int i = 0; i < rows.count; ++i) {
      EXPECT_EQ(keys.at(static_cast<std::size_t>(rows.at + i)).first, -2) << "a row that comes twice";
      keys.at(static_cast<std::size_t>(rows.at + i)) = own.at(static_cast<std::size_t>(rows.row + i));
    }
  }
  return keys;
}

TEST(KeyExchange, lets_each_query_see_the_keys_up_to_its_own_in_any_micro_batch) {
  std::mt19937_64 random(5);
  const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int exchanges = 0;
  for (int round = 0; round < 300; ++round) {
    const int ranks = 1 + draw(5);
    std::vector<PlacedDocument> documents;
    for (int doc = 0, count = 1 + draw(6); doc < count; ++doc) {
      const int degree = 1 + draw(ranks);
      documents.push_back(
          {.doc = 10 + doc, .tokens = 1 + draw(30), .span = {draw(ranks - degree + 1), degree, draw(2) == 1}});
    }
    const MicroBatch micro_batch = lay_out(documents, ranks, 1 + draw(3), 1 + draw(3));
    const std::vector<SeenKeys> exchange = key_exchange(micro_batch);
    ASSERT_EQ(std::ssize(exchange), ranks);
    std::map<i64, i64> queries;  // of a document
    for (std::size_t rank = 0; rank < exchange.size(); ++rank) {
      const SeenKeys& seen = exchange[rank];
      EXPECT_EQ(seen.rows, keys_brought_together(micro_batch.shard[rank]));
      exchanges += seen.rows > 0;
      const std::vector<Token> own = tokens_of(micro_batch.shard[rank]), keys = keys_of(seen, micro_batch, rank);
      for (const Token& key : keys) EXPECT_NE(key.first, -2) << "a row that nobody sends";
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
  }
  EXPECT_GT(exchanges, 100);
}

TEST(KeyExchange, of_whole_documents_is_nothing) {
  const MicroBatch micro_batch = lay_out(std::vector<PlacedDocument>{{0, 5, {}}, {1, 4, {1, 1}}}, 2, 4);
  const std::vector<SeenKeys> exchange = key_exchange(micro_batch);
  for (const SeenKeys& seen : exchange) {
    EXPECT_EQ(seen.rows, 0);
    EXPECT_THAT(seen.from, IsEmpty());
  }
  EXPECT_THAT(exchange[0].blocks, ElementsAre(QueryBlock{.q = 0, .qn = 5, .k = 0, .kn = 5}));
}

TEST(KeyExchange, brings_what_the_ring_map_counts) {
  for (int degree = 2; degree <= 6; ++degree)
    for (i64 tokens = 2; tokens <= 40; ++tokens) {
      const PlacedDocument document{.doc = 0, .tokens = tokens, .span = {0, degree}};
      const std::vector<SeenKeys> exchange = key_exchange(lay_out({&document, 1}, degree, 1));
      const std::vector<ReceivedKeys> received = received_keys(document, degree);
      for (std::size_t rank = 0; rank < exchange.size(); ++rank) {
        i64 from_others = 0;
        for (const KeyRows& rows : exchange[rank].from)
          if (rows.holder != static_cast<int>(rank)) from_others += rows.count;
        EXPECT_EQ(from_others, received[rank].inside) << tokens << " tokens, degree " << degree << ", rank " << rank;
      }
    }
}

// Ring ranks from which a rank gets keys, and the first position and number of them.
std::map<int, std::vector<std::pair<int, int>>> keys_from_others(const PlacedDocument& document, int rank) {
  const std::vector<SeenKeys> seen = key_exchange(lay_out({&document, 1}, document.span.degree, 1));
  std::map<int, std::vector<std::pair<int, int>>> others;
  for (const KeyRows& rows : seen[static_cast<std::size_t>(rank)].from)
    if (rows.holder != rank) others[rows.holder].emplace_back(static_cast<int>(rows.at), rows.count);
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

}  // namespace
}  // namespace switchyard::batch
