"""Data for programs of docs/real_programs.toml whose own cannot be fetched: put where their libraries look for it."""

from __future__ import annotations

from pathlib import Path


def mnist(home: Path) -> None:
    """scikit-learn's digits where torchvision looks for MNIST, in MNIST's own format."""
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.pad(np.kron(digits.images, np.ones((3, 3))) * 255 / 16, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    raw = home / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, chosen in (("train", slice(0, 1500)), ("t10k", slice(1500, None))):
        for kind, values in (("images-idx3", images[chosen]), ("labels-idx1", digits.target[chosen].astype(np.uint8))):
            head = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
            (raw / f"{part}-{kind}-ubyte").write_bytes(head + values.tobytes())


def keras_mnist(home: Path) -> None:
    """scikit-learn's digits by the module that has Keras's MNIST: Keras compares the hash of what lies in its cache."""
    mnist(home)
    replaced = home / "replaced"
    replaced.mkdir()
    (replaced / "keras_mnist.py").write_text(
        "import torchvision.datasets as them\n"
        "def load_data(path='mnist.npz'):\n"
        "    parts = [them.MNIST('~/data', train=train) for train in (True, False)]\n"
        "    return tuple((part.data.numpy(), part.targets.numpy()) for part in parts)\n"
    )
    (replaced / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "class Replaced:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'keras.src.datasets.mnist':\n"
        "            file = __file__.replace('sitecustomize', 'keras_mnist')\n"
        "            return importlib.util.spec_from_file_location(name, file)\n"
        "sys.meta_path.insert(0, Replaced())\n"
    )


DATA = {"mnist": mnist, "keras_mnist": keras_mnist}
