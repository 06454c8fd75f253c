"""Trains a small network with SGD, and half-way keeps much more on the GPU: an evaluation set, say."""

from training import FakeSize, parser, train


def main() -> None:
    asks = parser("a network that grows late")
    asks.add_argument("--more-gib", type=float, default=2.0)
    asked = asks.parse_args()

    def make_step(torch):  # type: ignore[no-untyped-def]
        model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(12)]).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            data = torch.randn(asked.batch, 2048).cuda()
            optimizer.zero_grad(set_to_none=True)
            (model(data) - data).square().mean().backward()
            optimizer.step()

        return step

    train(make_step, FakeSize(0.9, 1 / 4096), asked.batch, late_gib=asked.more_gib)


if __name__ == "__main__":
    main()
