class Keeping:
    def __init__(self, data):
        self.data = data

    def method(self):
        return self.data


class Nesting:
    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        import pickle

        return rebuilt, (pickle.dumps({"x": [self.data]}),)


class Stateful:
    def __init__(self, data):
        self.data = data

    def __getstate__(self):
        import copy

        return copy.deepcopy(self.__dict__)


def rebuilt(blob):
    import pickle

    return Nesting(pickle.loads(blob)["x"][0])
