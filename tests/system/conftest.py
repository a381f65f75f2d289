import pytest
from tiny_runs import random_documents, write_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """40 documents of 1 to 48 tokens."""
    return write_corpus(tmp_path_factory.mktemp("corpus") / "data", random_documents(1, 40))
