"""Trains a two-layer LSTM with Adam on random sequences."""

from training import FakeSize, parser, train


def main() -> None:
    asked = parser("an LSTM").parse_args()

    def make_step(torch):  # type: ignore[no-untyped-def]
        nn, width, length = torch.nn, 1024, 256
        network, head = (
            nn.LSTM(width, width, 2, batch_first=True).cuda(),
            nn.Linear(width, 1).cuda(),
        )
        both = [*network.parameters(), *head.parameters()]
        optimizer = torch.optim.Adam(both, lr=1e-4)
        data = torch.randn(asked.batch, length, width).cuda()

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            head(network(data)[0]).square().mean().backward()
            optimizer.step()

        return step

    train(make_step, FakeSize(0.9, 0.016), asked.batch)


if __name__ == "__main__":
    main()
