"""Trains a Transformer encoder with AdamW on random tokens."""

from training import FakeSize, parser, train


def main() -> None:
    asks = parser("a Transformer")
    asks.add_argument("--layers", type=int, default=12)
    asked = asks.parse_args()

    def make_step(torch):  # type: ignore[no-untyped-def]
        nn, width, length, words = torch.nn, 1024, 512, 8192
        layer = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True)
        model = nn.Sequential(
            nn.Embedding(words, width),
            nn.TransformerEncoder(layer, asked.layers, enable_nested_tensor=False),
            nn.Linear(width, words),
        ).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        tokens = torch.randint(words, (asked.batch, length)).cuda()

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                said = model(tokens)
                loss = nn.functional.cross_entropy(said.flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()

        return step

    train(make_step, FakeSize(0.6 + 0.2 * asked.layers, 0.3), asked.batch)


if __name__ == "__main__":
    main()
