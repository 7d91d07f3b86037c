// acp-client.mjs SDK DIRECTORY COMMAND...: an editor, as far as the Agent Client Protocol goes, with its own library. Asks the agent that COMMAND starts
// one thing, and prints what it says.
import { spawn } from 'node:child_process';
import { Readable, Writable } from 'node:stream';
import { pathToFileURL } from 'node:url';

const [sdk, directory, ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(`${sdk}/dist/v1/stable/acp.js`));
const agent = spawn(command[0], command.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
agent.on('exit', (code) => { console.error(`the agent ended: ${code}`); process.exit(2); });

let said = '';
const editor = acp.client({ name: 'editor' })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => ({
    outcome: { outcome: 'selected', optionId: params.options[0].optionId },
  }))
  .onNotification(acp.methods.client.session.update, ({ params: { update } }) => {
    if (update.sessionUpdate === 'agent_message_chunk' && update.content.type === 'text') said += update.content.text;
  });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
await editor.connectWith(stream, async (ctx) => {
  const { agent: asked } = acp.methods;
  await ctx.request(asked.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  const { sessionId } = await ctx.request(asked.session.new, { cwd: directory, mcpServers: [] });
  const prompt = [{ type: 'text', text: 'say hi' }];
  const { stopReason } = await ctx.request(asked.session.prompt, { sessionId, prompt });
  console.log(`said: ${said}\nended: ${stopReason}`);
});
process.exit(0);
