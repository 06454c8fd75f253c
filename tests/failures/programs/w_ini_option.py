# reason: bad-arguments
import configparser

config = configparser.ConfigParser()
config.read_string("[train]\nepochs = 3\n")
print(config.get("train", "batch_size"))
