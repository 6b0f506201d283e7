CFG, NAMES = {"lr": 0.1}, ["a"]


class Settings:
    rate = 1


settings = Settings()
