# reason: network-error
import asyncio


async def fetch():
    await asyncio.open_connection("127.0.0.1", 9)


async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(fetch())


asyncio.run(main())
