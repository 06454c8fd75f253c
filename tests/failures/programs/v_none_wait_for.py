# reason: unknown
import asyncio

asyncio.run(asyncio.wait_for(asyncio.sleep(5), 0.1))
