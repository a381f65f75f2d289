// The part of the program that is written in Python (tokenizers, Weights & Biases), and where it lies.
#pragma once

#include <string>
#include <vector>

namespace switchyard::files {

/// The words of a command as `python -m MODULE ARGUMENTS`, but that no module comes from the working folder, with
/// PYTHONPATH set for it in this process's environment. The modules are in share/switchyard of an installed prefix, or
/// in the source tree whose build folder has the program, or where SWITCHYARD_ROOT says; the interpreter is that of the
/// source tree's .venv or of the environment that the program is installed into, else the one on PATH, or what
/// SWITCHYARD_PYTHON names.
/// errors  UserError if the modules are not there
std::vector<std::string> python_command(const std::string& module, const std::vector<std::string>& arguments);

}  // namespace switchyard::files
