#include "base/key_passing.hpp"

namespace switchyard {

std::string_view name_of(KeyPassing passing) { return passing == KeyPassing::gather ? "gather" : "ring"; }

}  // namespace switchyard
