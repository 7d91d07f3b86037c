const fs = require('fs');
const { Client, Pool } = require('pg');
const ssl = { ca: fs.readFileSync(process.env.PGSSLROOTCERT), servername: process.env.NAME };
delete process.env.PGSSLMODE;
delete process.env.PGSSLROOTCERT;

async function main() {
  const pool = new Pool({ ssl, max: 4 });
  const sums = await Promise.all([...Array(20).keys()].map((n) => pool.query('select $1::int + 1 as n', [n])));
  sums.forEach((sum, n) => { if (sum.rows[0].n !== n + 1) throw new Error(`${n}`); });
  await pool.end();

  const client = new Client({ ssl: false });
  await client.connect();
  const who = await client.query('select current_user as me');
  if (who.rows[0].me !== 'app') throw new Error(who.rows[0].me);
  await client.query({ name: 'p', text: 'select repeat($1, 100000) as long', values: ['x'] });
  await client.end();

  for (const [more, code, said] of [
    [{ password: 'x'.repeat(20) }, '28P01', 'foreign-credential'],
    [{ user: 'admin' }, '28000', 'credential-restricted'],
    [{ database: 'other' }, '28000', 'host-not-allowed'],
  ]) {
    const refused = new Client({ ssl, ...more });
    const error = await refused.connect().then(() => { throw new Error('it was let in'); }, (error) => error);
    if (error.code !== code || !error.message.includes(`understudy: ${said}`)) throw error;
  }
  console.log('done');
}

main().catch((error) => { console.error(error); process.exit(1); });
