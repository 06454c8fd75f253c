"""Trains a multi-layer perceptron with Adam; its batches are made on the CPU, as a simple loader does."""

from training import FakeSize, parser, train


def main() -> None:
    asks = parser("a multi-layer perceptron")
    asks.add_argument("--width", type=int, default=2048)
    asked = asks.parse_args()

    def make_step(torch):  # type: ignore[no-untyped-def]
        layers = [
            each
            for _ in range(8)
            for each in (torch.nn.Linear(asked.width, asked.width), torch.nn.ReLU())
        ]
        model = torch.nn.Sequential(*layers).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

        def step() -> None:
            data = torch.randn(asked.batch, asked.width).cuda()
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = (model(data) - data).float().square().mean()
            loss.backward()
            optimizer.step()

        return step

    fixed_gib = 0.5 + 8 * 16 * asked.width**2 / (1 << 30)
    train(make_step, FakeSize(fixed_gib, 1 / 2048), asked.batch)


if __name__ == "__main__":
    main()
