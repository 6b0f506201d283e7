from pathlib import Path

FILE, model = Path(__file__), None


class Strict(dict):
    def __getattr__(self, name):
        return self[name]


class Own(dict):
    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


class Model:
    def __init__(self):
        self.first, self.last, self.own, self.file = [0], [1], self, __file__


class Places:
    made = None

    @classmethod
    def get(cls):
        if cls.made is None:
            cls.made = str(Path(__file__))
        return cls.made


strict, own, tied = Strict(rate=1), Own(rate=1), Model()


def read():
    return own.rate, Path(Places.get()).exists(), FILE.exists(), Path(tied.file).exists()
