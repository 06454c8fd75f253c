# reason: bad-arguments
import click


@click.command()
@click.option("--batch-size", type=int, required=True)
def main(batch_size):
    print(batch_size)


main(["--batchsize", "8"])
