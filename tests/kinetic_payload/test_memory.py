import pytest

from kinetic_payload.memory import in_mebibytes, memory_to_try

Mi = 2**20


@pytest.mark.parametrize(
    ("most", "wanted"),
    [(1, "64Mi"), (64 * Mi, "128Mi"), (600 * Mi, "960Mi"), (900 * Mi, "2Gi"), (16384 * Mi, "24Gi")],
)
def test_half_as_much_again_is_suggested(most: int, wanted: str) -> None:
    assert memory_to_try(most) == wanted


def test_amounts_are_written_in_mebibytes() -> None:
    assert in_mebibytes(20 * 1024 * Mi) == "20,480 Mi"
