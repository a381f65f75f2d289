#include "kernels/element_works.hpp"

#include "kernels/activation.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/element_tensors.hpp"
#include "kernels/norm.hpp"
#include "kernels/rope.hpp"
#include "oracle.hpp"

namespace switchyard::kernels {
namespace {

using namespace oracle;

// Works are computed on the host here, as a GPU's threads do it: each element, in an order that nobody promises.
at::Tensor on_host(at::IntArrayRef shape, at::ScalarType type, unsigned seed, i64 spare) {
  const at::Tensor values = random(shape, type, seed).cpu();
  if (spare == 0) return values;
  const at::Tensor wide = values.new_empty({shape[0], shape[1] + spare});
  return wide.narrow(1, spare / 2, shape[1]).copy_(values);
}

template <int N, class Work>
void packs_on_host(const Work& work) {
  for (i64 row = work.rows() - 1; row >= 0; --row)
    if constexpr (requires { typename Work::Sum; }) {
      typename Work::Sum sum = 0;
      for (i64 column = 0; column < work.columns(); column += N) sum += work.template part<N>(row, column);
      work.finish(row, sum);
      if constexpr (requires { work.template apply<N>(row, 0, sum); })
        for (i64 column = 0; column < work.columns(); column += N) work.template apply<N>(row, column, sum);
    } else {
      for (i64 column = 0; column < work.columns(); column += N) work.template run<N>(row, column);
    }
}

template <class Work>
void on_host(const Work& work) {
  if (work.packs()) return packs_on_host<Work::kPack>(work);
  packs_on_host<1>(work);
}

struct Heads {
  int dim;
  i64 spare;  // columns between rows
  bool inverse;
};

TEST(ElementWorks, RotateEachPairOfEachHeadByItsPosition) {
  const i64 tokens = 11, heads = 3;
  for (const auto type : kTypes)
    for (const Heads& of : {Heads{8, 6, false}, {8, 6, true}, {16, 16, false}, {32, 0, true}}) {
      const int dim = of.dim;
      const bool inverse = of.inverse;
      const at::ScalarType state = state_of(type);
      const at::Tensor x = on_host({tokens, heads * dim}, type, 1, of.spare), cos = on_host({20, dim / 2}, state, 2, 0),
                       sin = on_host({20, dim / 2}, state, 3, 0),
                       positions = integers({0, 19, 3, 3, 7, 1, 0, 2, 18, 5, 4}).cpu();
      at::Tensor expected = x.new_empty(x.sizes()), y = on_host({tokens, heads * dim}, type, 4, 2 * of.spare);
      rope(expected, x, cos, sin, positions, dim, inverse);
      with_element(y, [&]<class T>() {
        const auto work = rope_work<T>(y, x, cos, sin, positions, dim, inverse);
        EXPECT_EQ(work.packs(), of.spare % 16 == 0);
        on_host(work);
      });
      expect_close(y, values(expected), tolerance_of(type), "y");
      at::Tensor in_place = x.clone();
      with_element(y, [&]<class T>() { on_host(rope_work<T>(in_place, in_place, cos, sin, positions, dim, inverse)); });
      expect_same_bits(in_place, y, "in place");
    }
}

// Widths and strides that can be read in packs, or can't.
struct Rows {
  i64 width, spare;
};
constexpr Rows kRows[] = {{5, 2}, {24, 0}, {24, 2}};

TEST(ElementWorks, AreSwigluAndItsGradients) {
  const i64 rows = 7;
  for (const auto type : kTypes)
    for (const Rows& of : kRows) {
      const i64 width = of.width, spare = of.spare;
      const at::Tensor gate = on_host({rows, width}, type, 1, 2 * spare), up = on_host({rows, width}, type, 2, spare),
                       dh = on_host({rows, width}, type, 3, 0);
      at::Tensor expected[3], got[3];
      for (int i = 0; i < 3; ++i) {
        expected[i] = gate.new_empty(gate.sizes());
        got[i] = on_host({rows, width}, type, static_cast<unsigned>(4 + i), i * spare);
      }
      swiglu(expected[0], gate, up);
      swiglu_dx(expected[1], expected[2], dh, gate, up);
      with_element(gate, [&]<class T>() {
        const auto work = swiglu_work<T>(got[0], gate, up);
        EXPECT_EQ(work.packs(), width == 24 && spare == 0);
        on_host(work);
        on_host(swiglu_gradient_work<T>(got[1], got[2], dh, gate, up));
      });
      for (int i = 0; i < 3; ++i) expect_close(got[i], values(expected[i]), tolerance_of(type), "h, dgate, dup");
      at::Tensor dgate = gate.clone(), dup = up.clone();
      with_element(gate, [&]<class T>() { on_host(swiglu_gradient_work<T>(dgate, dup, dh, dgate, dup)); });
      expect_same_bits(dgate, got[1].contiguous(), "in place");
    }
}

TEST(ElementWorks, AreRmsNormAndItsGradients) {
  const i64 rows = 2 * NormWeightWork<float>::kRowsOfPart + 3;
  for (const auto type : kTypes)
    for (const Rows& of : kRows) {
      const i64 width = of.width, spare = of.spare;
      const at::ScalarType state = state_of(type);
      const at::Tensor x = on_host({rows, width}, type, 1, spare), dy = on_host({rows, width}, type, 2, 2 * spare),
                       residual = on_host({rows, width}, type, 3, 0), w = on_host({width}, type, 4, 0);
      at::Tensor expected[2] = {x.new_empty(x.sizes()), x.new_empty(x.sizes())}, dw = on_host({width}, state, 5, 0),
                 rstd = on_host({rows}, state, 6, 0), got_rstd = on_host({rows}, state, 7, 0),
                 got[2] = {on_host({rows, width}, type, 8, spare), on_host({rows, width}, type, 9, 0)};
      const at::Tensor before = dw.clone();
      rms_norm(expected[0], rstd, x, w, 1e-5);
      rms_norm_dw(dw, dy, x, rstd);
      for (const at::Tensor& added : {at::Tensor(), residual}) {
        rms_norm_dx(expected[1], dy, x, w, rstd, added);
        with_element(x, [&]<class T>() {
          const auto work = rms_norm_work<T>(got[0], got_rstd, x, w, 1e-5);
          EXPECT_EQ(work.packs(), width == 24 && spare == 0);
          on_host(work);
          on_host(rms_norm_gradient_work<T>(got[1], dy, x, w, got_rstd, added));
        });
        expect_close(got_rstd, values(rstd), tolerance_of(state), "rstd");
        for (int i = 0; i < 2; ++i) expect_close(got[i], values(expected[i]), tolerance_of(type), "y, dx");
      }
      const at::Tensor partial = on_host({3, width}, state, 10, 0);
      at::Tensor in_place = dy.clone();
      with_element(x, [&]<class T>() {
        EXPECT_EQ(NormWeightWork<T>::parts(rows), 3);
        on_host(norm_weight_work<T>(partial, dy, x, got_rstd));
        on_host(rms_norm_gradient_work<T>(in_place, in_place, x, w, got_rstd, residual));
      });
      expect_close(partial.sum(0).add(before), values(dw), 10 * tolerance_of(state), "dw");
      expect_same_bits(in_place, got[1], "in place");
    }
}

TEST(ElementWorks, TurnLogitsOfAPartOfTheVocabularyIntoSumsAndGradients) {
  const i64 rows = 6, first = 20;
  for (const auto type : kTypes)
    for (const Rows& of : kRows) {
      const i64 width = of.width, spare = of.spare;
      const at::ScalarType state = state_of(type);
      const at::Tensor logits = on_host({rows, width}, type, 1, spare), weights = on_host({rows}, state, 2, 0),
                       labels = integers({20, 24, 3, -1, 23, 20 + width}).cpu();
      weights.select(0, 4).fill_(0);
      at::Tensor top = on_host({rows}, state, 3, 0), sums = on_host({2, rows}, state, 4, 0),
                 got = on_host({2, rows}, state, 5, 0), loss = on_host({rows}, state, 6, 0), expected = logits.clone();
      xent_max(top, logits);
      xent_sums(sums, logits, top, labels, first);
      xent_grad(expected, loss, top, sums, labels, weights, first);
      with_element(logits, [&]<class T>() {
        on_host(sum_of_exponentials_work<T>(got, logits, top, labels, first));
        on_host(cross_entropy_work<T>(logits, top, sums, labels, weights, first));
      });
      expect_close(got, values(sums), tolerance_of(state), "sums");
      expect_close(logits, values(expected), tolerance_of(type), "gradient");
    }
}

// Flat tensors of more than one row, whose last is not a multiple of a pack.
constexpr i64 kFlat = kFlatRow + 1003;

TEST(ElementWorks, SumSquaresOfFlatTensorsInFp64) {
  for (const auto type : {at::kDouble, at::kFloat})
    for (const i64 begin : {0, 1}) {
      const at::Tensor x = on_host({kFlat}, type, 1, 0).narrow(0, begin, kFlat - begin),
                       partial = on_host({flat_rows(x.numel())}, at::kDouble, 2, 0);
      with_state_element(x, [&]<class T>() {
        const auto work = squares_work<T>(partial, x);
        EXPECT_EQ(work.packs(), begin == 0);
        on_host(work);
      });
      const double expected = x.to(at::kDouble).square().sum().item<double>();
      EXPECT_EQ(partial.numel(), 2);
      EXPECT_NEAR(partial.sum().item<double>(), expected, 1e-12 * expected);
    }
}

TEST(ElementWorks, AreAdamW) {
  const AdamWFactors<double> factors{0.01, 0.9, 0.95, 0.1, 0.05, 3e-3, 1.5, 1e-8, 0.7};
  for (const auto type : {at::kDouble, at::kFloat})
    for (const bool copies : {false, true}) {
      const at::Tensor p = on_host({kFlat}, type, 1, 0), m = on_host({kFlat}, type, 2, 0),
                       v = on_host({kFlat}, type, 3, 0).square(), grad = on_host({kFlat}, type, 4, 0),
                       copy = copies ? on_host({kFlat}, at::kBFloat16, 5, 0) : at::Tensor();
      const at::Tensor g = grad.mul(factors.clip), m_new = m.mul(factors.beta1).add(g, factors.rest1),
                       v_new = v.mul(factors.beta2).add(g.mul(g), factors.rest2),
                       p_new =
                           p.mul(1 - factors.decay)
                               .sub(m_new.div(v_new.mul(factors.correction2).sqrt().add(factors.eps)), factors.rate);
      with_state_element(p, [&]<class T>() {
        const auto f = [&](double AdamWFactors<double>::*factor) { return static_cast<T>(factors.*factor); };
        using F = AdamWFactors<double>;
        on_host(adamw_work<T>(p, m, v, copy, grad,
                              {f(&F::decay), f(&F::beta1), f(&F::beta2), f(&F::rest1), f(&F::rest2), f(&F::rate),
                               f(&F::correction2), f(&F::eps), f(&F::clip)}));
      });
      expect_close(p, values(p_new), tolerance_of(type), "p");
      expect_close(m, values(m_new), tolerance_of(type), "m");
      expect_close(v, values(v_new), tolerance_of(type), "v");
      if (copies) expect_same_bits(copy, p.to(at::kBFloat16), "copy");
    }
}

TEST(ElementWorks, RoundBf16AsTorchDoes) {
  const at::Tensor x = on_host({1, 1000}, at::kFloat, 1, 0), rounded = x.to(at::kBFloat16);
  for (i64 i = 0; i < 1000; ++i) {
    Bf16 y{};
    store(y, x.const_data_ptr<float>()[i]);
    EXPECT_EQ(y.bits, rounded.const_data_ptr<at::BFloat16>()[i].x);
    EXPECT_EQ(wide(y), static_cast<float>(rounded.const_data_ptr<at::BFloat16>()[i]));
  }
}

TEST(ElementWorks, RunWhereThisBuildHasKernelsOfThem) {
  const at::Tensor x = on_host({2, 2}, at::kFloat, 1, 0);
  EXPECT_FALSE(has_element_kernels({&x})) << "a tensor of the CPU";
}

}  // namespace
}  // namespace switchyard::kernels
